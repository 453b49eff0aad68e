package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/outbox"
)

// errProtocol is the error of bytes that are not what the protocol says.
var errProtocol = errors.New("malformed replication message")

// Lengths of the fixed parts, https://www.postgresql.org/docs/current/protocol-replication.html and
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
const (
	walDataHeader   = 1 + 8 + 8 + 8
	keepaliveLength = 1 + 8 + 8 + 1
	beginLength     = 1 + 8 + 8 + 4
	commitLength    = 1 + 1 + 8 + 8 + 8
)

func (s *Session) copyData(data []byte, ev *outbox.Event) (Message, error) {
	s.lastRead = time.Now()
	switch {
	case len(data) > walDataHeader && data[0] == pglogrepl.XLogDataByteID:
		return s.walData(data[walDataHeader:], ev)
	case len(data) >= keepaliveLength && data[0] == pglogrepl.PrimaryKeepaliveMessageByteID:
		return s.keepalive(lsn(data[1:]), data[17] != 0)
	}
	return Message{}, errProtocol
}

// keepalive notes a request for an answer, which goes out with the next status update.
func (s *Session) keepalive(walEnd pglogrepl.LSN, request bool) (Message, error) {
	if request {
		s.status.requested = true
		if s.stopping.requested(walEnd, s.status.confirmed, s.lastRead) {
			return Message{}, fmt.Errorf("it waits for a confirmation that cannot be given: %w", ErrServerStopping)
		}
	}
	return Message{Kind: Keepalive, WALEnd: walEnd}, nil
}

// walData reads one pgoutput message. The LSNs around it say nothing that can be used: a Relation carries 0, and the rows
// of one COPY share theirs.
func (s *Session) walData(data []byte, ev *outbox.Event) (Message, error) {
	switch data[0] {
	case 'B':
		if len(data) < beginLength || s.tx.open {
			return Message{}, fmt.Errorf("begin: %w", errProtocol)
		}
		s.tx = transaction{open: true, commitLSN: lsn(data[1:]), commitTime: pgTime(binary.BigEndian.Uint64(data[9:]))}
		return Message{Kind: Begin}, nil
	case 'C':
		if len(data) < commitLength || !s.tx.open {
			return Message{}, fmt.Errorf("commit: %w", errProtocol)
		}
		s.tx.open = false
		return Message{Kind: Commit, EndLSN: lsn(data[10:])}, nil
	case 'R':
		return Message{Kind: Other}, s.decoder.Relation(data)
	case 'I':
		return s.insert(data, ev)
	}
	return Message{Kind: Other}, nil // Update, Delete, Truncate, Type, Origin, Message, and what later servers invent
}

func (s *Session) insert(data []byte, ev *outbox.Event) (Message, error) {
	if !s.tx.open {
		return Message{}, fmt.Errorf("insert outside a transaction: %w", errProtocol)
	}
	ours, err := s.decoder.Insert(data, ev)
	if err != nil {
		return Message{}, fmt.Errorf("transaction with commit LSN %s: %w", s.tx.commitLSN, err)
	}
	if !ours {
		return Message{Kind: Other}, nil
	}
	ev.Position = outbox.Position{CommitLSN: s.tx.commitLSN, Index: s.tx.events}
	ev.CommitTime = s.tx.commitTime
	s.tx.events++
	return Message{Kind: Event}, nil
}

func lsn(b []byte) pglogrepl.LSN { return pglogrepl.LSN(binary.BigEndian.Uint64(b)) }

// pgTime converts microseconds since 2000-01-01 UTC.
func pgTime(us uint64) time.Time {
	const epoch = 946684800 // 2000-01-01 in Unix time
	return time.Unix(epoch, 0).Add(time.Duration(int64(us)) * time.Microsecond).UTC()
}
