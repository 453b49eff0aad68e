package pgmodel

import (
	"encoding/binary"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// The messages of a replication stream, as in
// https://www.postgresql.org/docs/current/protocol-replication.html and
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html

const epoch = 946684800 // 2000-01-01 UTC in Unix time

func micros(t time.Time) uint64 { return uint64(t.UnixMicro() - epoch*1_000_000) }

func walData(at, end pglogrepl.LSN, now time.Time, message []byte) *pgproto3.CopyData {
	b := binary.BigEndian.AppendUint64([]byte{'w'}, uint64(at))
	b = binary.BigEndian.AppendUint64(b, uint64(end))
	b = binary.BigEndian.AppendUint64(b, micros(now))
	return &pgproto3.CopyData{Data: append(b, message...)}
}

func keepalive(end pglogrepl.LSN, now time.Time, request bool) *pgproto3.CopyData {
	b := binary.BigEndian.AppendUint64([]byte{'k'}, uint64(end))
	b = binary.BigEndian.AppendUint64(b, micros(now))
	if request {
		return &pgproto3.CopyData{Data: append(b, 1)}
	}
	return &pgproto3.CopyData{Data: append(b, 0)}
}

func begin(tx *Tx) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(tx.Commit))
	b = binary.BigEndian.AppendUint64(b, micros(tx.At))
	return binary.BigEndian.AppendUint32(b, tx.XID)
}

func commit(tx *Tx) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(tx.Commit))
	b = binary.BigEndian.AppendUint64(b, uint64(tx.End))
	return binary.BigEndian.AppendUint64(b, micros(tx.At))
}

// OIDs of the two tables that are published.
const (
	OutboxOID = 16385
	otherOID  = 16400
)

// Shape is a version of the outbox table: which columns it has, in which order.
type Shape []string

// shapes are the versions that DDL goes through. What the relay needs is in all of them.
var shapes = []Shape{
	{"id", "topic", "payload", "aggregate_id", "sequence", "headers"},
	{"id", "topic", "payload", "aggregate_id", "sequence", "headers", "note"},
	{"note", "headers", "aggregate_id", "payload", "sequence", "id", "topic"},
	unfit: {"id", "topic", "note"},
}

// unfit is the version without a payload, which no DDL of a healthy schedule makes.
const unfit = 3

func relation(oid uint32, name string, columns Shape) []byte {
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

func insert(oid uint32, values ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'I'}, oid)
	b = binary.BigEndian.AppendUint16(append(b, 'N'), uint16(len(values)))
	for _, v := range values {
		if v == "" {
			b = append(b, 'n')
			continue
		}
		b = binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v)))
		b = append(b, v...)
	}
	return b
}

func (r Row) values(shape Shape) []string {
	values := make([]string, len(shape))
	for i, column := range shape {
		switch column {
		case "id":
			values[i] = r.ID
		case "topic":
			values[i] = r.Topic
		case "payload":
			values[i] = r.Payload
		case "aggregate_id":
			values[i] = r.Aggregate
		case "sequence":
			values[i] = r.Sequence
		case "headers":
			values[i] = r.Headers
		case "note":
			values[i] = "a column that no relay needs"
		}
	}
	return values
}
