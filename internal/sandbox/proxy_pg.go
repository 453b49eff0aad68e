package sandbox

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/jackc/pglogrepl"
)

// PgMessage is a message on a PostgreSQL connection.
type PgMessage struct {
	Connection int  // the number of the connection in this proxy, from 1
	ToServer   bool // sent by the client
	Type       byte // the message's type; 0 for the client's start-up, cancel and encryption requests
	SizeBytes  int  // on the wire

	// Of CopyData (Type 'd'), as a replication connection uses it:

	Copy           byte // 'r' status update, 'w' WAL data, 'k' keepalive; else 0
	ReplyRequested bool // of 'r' and 'k'

	Write, Flush, Apply pglogrepl.LSN // of 'r'
	WALStart            pglogrepl.LSN // of 'w'
	WALEnd              pglogrepl.LSN // of 'w' and 'k'
	Pgoutput            byte          // of 'w': the first byte of its data, e.g. 'B', 'I', 'C'
}

// IsStatusUpdate says whether a client confirms positions with this message.
func (m PgMessage) IsStatusUpdate() bool { return m.ToServer && m.Copy == 'r' }

const (
	pgHeader      = 5 // type and length
	pgStartHeader = 8 // length and code
	pgMaxHead     = pgHeader + 34

	codeCancel = 80877102
	codeSSL    = 80877103
	codeGSS    = 80877104

	copyData = 'd'
)

// pgShared is what the two directions of a connection tell each other.
type pgShared struct {
	asked     atomic.Bool // the client asks for encryption: the server's next message is one byte
	encrypted atomic.Bool // it was granted: nothing can be read any more
}

// pgProtocol reads the messages of one direction.
type pgProtocol struct {
	splitter *splitter
	startup  bool // the client's first messages have no type
}

func (p *pgProtocol) frame(b []byte) (want, size int) {
	shared := p.splitter.shared
	switch {
	case shared.encrypted.Load():
		return 0, opaque
	case !p.splitter.toServer && shared.asked.Load():
		return 1, 1
	case p.startup:
		if len(b) < pgStartHeader {
			return pgStartHeader, 0
		}
		return pgStartHeader, max(pgStartHeader, int(binary.BigEndian.Uint32(b)))
	case len(b) < pgHeader:
		return pgHeader, 0
	}
	size = 1 + int(binary.BigEndian.Uint32(b[1:]))
	if size < pgHeader {
		return 0, opaque // not the protocol we know
	}
	if b[0] != copyData {
		return pgHeader, size
	}
	return min(size, pgMaxHead), size
}

func (p *pgProtocol) judge(head []byte, size int) Action {
	if size == opaque {
		return Forward
	}
	m := PgMessage{Connection: p.splitter.connection, ToServer: p.splitter.toServer, SizeBytes: size}
	shared := p.splitter.shared
	switch {
	case !m.ToServer && shared.asked.Load():
		shared.encrypted.Store(head[0] == 'S' || head[0] == 'G')
		shared.asked.Store(false)
		m.Type = head[0]
	case p.startup:
		switch binary.BigEndian.Uint32(head[4:]) {
		case codeSSL, codeGSS:
			shared.asked.Store(true)
		case codeCancel:
		default:
			p.startup = false
		}
	default:
		m.Type = head[0]
		if m.Type == copyData {
			m.readCopy(head[pgHeader:])
		}
	}
	return p.splitter.proxy.askPg(m)
}

// readCopy reads the data of a CopyData message as far as it is there. Other uses of COPY are left alone.
func (m *PgMessage) readCopy(b []byte) {
	const (
		statusBytes    = 1 + 4*8 + 1
		walBytes       = 1 + 3*8
		keepaliveBytes = 1 + 2*8 + 1
	)
	lsn := func(i int) pglogrepl.LSN { return pglogrepl.LSN(binary.BigEndian.Uint64(b[1+8*i:])) }
	switch {
	case len(b) == 0:
	case m.ToServer && b[0] == 'r' && len(b) >= statusBytes:
		m.Copy = 'r'
		m.Write, m.Flush, m.Apply = lsn(0), lsn(1), lsn(2)
		m.ReplyRequested = b[statusBytes-1] != 0
	case !m.ToServer && b[0] == 'w' && len(b) >= walBytes:
		m.Copy = 'w'
		m.WALStart, m.WALEnd = lsn(0), lsn(1)
		if len(b) > walBytes {
			m.Pgoutput = b[walBytes]
		}
	case !m.ToServer && b[0] == 'k' && len(b) >= keepaliveBytes:
		m.Copy = 'k'
		m.WALEnd = lsn(0)
		m.ReplyRequested = b[keepaliveBytes-1] != 0
	}
}
