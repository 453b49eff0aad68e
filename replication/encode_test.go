package replication

import (
	"encoding/binary"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	outboxOID = 16385
	otherOID  = 16400
)

// walDataAt is an XLogData message at an LSN.
func walDataAt(at pglogrepl.LSN, message []byte) *pgproto3.CopyData {
	b := binary.BigEndian.AppendUint64([]byte{'w'}, uint64(at))
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	b = append(b, make([]byte, 8)...)
	return &pgproto3.CopyData{Data: append(b, message...)}
}

func keepaliveAt(walEnd pglogrepl.LSN, request bool) *pgproto3.CopyData {
	b := binary.BigEndian.AppendUint64([]byte{'k'}, uint64(walEnd))
	b = append(b, make([]byte, 8)...)
	if request {
		return &pgproto3.CopyData{Data: append(b, 1)}
	}
	return &pgproto3.CopyData{Data: append(b, 0)}
}

func beginMessage(commitLSN pglogrepl.LSN, at time.Time) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(commitLSN))
	b = binary.BigEndian.AppendUint64(b, uint64(at.UnixMicro()-pgTime(0).UnixMicro()))
	return binary.BigEndian.AppendUint32(b, 777)
}

func commitMessage(commitLSN, end pglogrepl.LSN) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(commitLSN))
	b = binary.BigEndian.AppendUint64(b, uint64(end))
	return append(b, make([]byte, 8)...)
}

// relationMessage announces a table with text columns of these names.
func relationMessage(oid uint32, name string, columns ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'R'}, oid)
	b = append(append(b, "public\x00"+name...), 0, 'd')
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for _, c := range columns {
		b = append(append(append(b, 0), c...), 0)
		b = binary.BigEndian.AppendUint32(b, 25)
		b = binary.BigEndian.AppendUint32(b, 0xffffffff)
	}
	return b
}

func outboxRelation() []byte { return relationMessage(outboxOID, "outbox", "id", "topic", "payload") }

func insertMessage(oid uint32, values ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'I'}, oid)
	b = binary.BigEndian.AppendUint16(append(b, 'N'), uint16(len(values)))
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v)))
		b = append(b, v...)
	}
	return b
}
