package replication

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/seed-1cfd9858/relay/outbox"
)

// TestNext_Malformed: bytes that are not what the protocol says end the session with an error.
func TestNext_Malformed(t *testing.T) {
	t.Parallel()
	begin := walDataAt(0x1000, beginMessage(0x1800, time.Now()))
	commit := walDataAt(0x1800, commitMessage(0x1800, 0x1880))
	relation := walDataAt(0, outboxRelation())
	cut := func(m *pgproto3.CopyData, n int) *pgproto3.CopyData {
		return &pgproto3.CopyData{Data: m.Data[:len(m.Data)-n]}
	}
	for name, test := range map[string]struct {
		before []pgproto3.BackendMessage
		last   *pgproto3.CopyData
	}{
		"nothing":                   {nil, &pgproto3.CopyData{}},
		"an unknown copy message":   {nil, &pgproto3.CopyData{Data: make([]byte, 40)}},
		"a short keepalive":         {nil, cut(keepaliveAt(1, true), 1)},
		"a short header":            {nil, walDataAt(1, nil)},
		"a shorter header":          {nil, &pgproto3.CopyData{Data: []byte("w1")}},
		"a short begin":             {nil, cut(begin, 1)},
		"a begin of one byte":       {nil, walDataAt(1, []byte("B"))},
		"a begin in a transaction":  {[]pgproto3.BackendMessage{begin}, begin},
		"a short commit":            {[]pgproto3.BackendMessage{begin}, cut(commit, 1)},
		"a commit without a begin":  {nil, commit},
		"a second commit":           {[]pgproto3.BackendMessage{begin, commit}, commit},
		"an insert without a begin": {[]pgproto3.BackendMessage{relation}, walDataAt(1, insertMessage(outboxOID, "a", "t", "p"))},
		"an insert after a commit":  {[]pgproto3.BackendMessage{begin, relation, commit}, walDataAt(1, insertMessage(outboxOID, "a", "t", "p"))},
		"a short insert":            {[]pgproto3.BackendMessage{begin, relation}, cut(walDataAt(1, insertMessage(outboxOID, "a", "t", "p")), 1)},
		"an insert of one byte":     {[]pgproto3.BackendMessage{begin, relation}, walDataAt(1, []byte("I"))},
		"an insert of two columns":  {[]pgproto3.BackendMessage{begin, relation}, walDataAt(1, insertMessage(outboxOID, "a", "t"))},
		"a short relation":          {nil, cut(relation, 1)},
		"a relation of one byte":    {nil, walDataAt(1, []byte("R"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, srv := open(t, 0)
			play(t, s, srv, test.before...)
			srv.send(t, test.last)
			_, err := s.Next(time.Now().Add(limit), new(outbox.Event))
			if !protocolError(err) || !s.broken {
				t.Errorf("error %v, broken %t", err, s.broken)
			}
		})
	}
}

func protocolError(err error) bool {
	return errors.Is(err, errProtocol) || errors.Is(err, outbox.ErrMessage)
}

// FuzzCopyData: whatever the messages of a stream contain, each is read, or is a protocol error, or a row that does not fit;
// and events have their place in an open transaction.
func FuzzCopyData(f *testing.F) {
	join := func(messages ...[]byte) (data []byte) {
		for _, m := range messages {
			data = append(append(data, byte(len(m))), m...)
		}
		return data
	}
	stream, _, _ := twoTransactions()
	var all [][]byte
	for _, m := range stream {
		all = append(all, m.(*pgproto3.CopyData).Data)
	}
	f.Add(join(all...))
	for _, m := range all[:9] {
		f.Add(join(m))
		f.Add(join(all[1], m[:len(m)-1], m))
	}
	f.Add(join([]byte{}, []byte("w"), []byte("k")))
	f.Add(join(slices.Repeat([][]byte{keepaliveAt(5, true).Data}, stopRequests)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &Session{decoder: newDecoder(t)}
		var ev outbox.Event
		var begun bool
		for index := uint32(0); len(data) > 0; {
			n := min(int(data[0]), len(data)-1)
			message := data[1 : 1+n]
			data = data[1+n:]
			m, err := s.copyData(message, &ev)
			var unfit *outbox.TableError
			if err != nil {
				if !protocolError(err) && !errors.As(err, &unfit) && !errors.Is(err, ErrServerStopping) {
					t.Fatalf("error %v", err)
				}
				if unfit == nil {
					return
				}
				continue
			}
			switch m.Kind {
			case Begin:
				if begun {
					t.Fatal("a begin in a transaction")
				}
				begun, index = true, 0
			case Event:
				if !begun || ev.Position != (outbox.Position{CommitLSN: s.tx.commitLSN, Index: index}) {
					t.Fatalf("event at %s, begun %t, index %d", ev.Position, begun, index)
				}
				index++
			case Commit:
				if !begun || m.EndLSN != lsn(message[walDataHeader+10:]) {
					t.Fatalf("%+v, begun %t", m, begun)
				}
				begun = false
			case Keepalive:
				if m.WALEnd != lsn(message[1:]) || message[17] != 0 && !s.status.requested {
					t.Fatalf("%+v", m)
				}
			case Other:
			default:
				t.Fatalf("%+v", m)
			}
			if m.Kind != Commit && m.EndLSN != 0 || m.Kind != Keepalive && m.WALEnd != pglogrepl.LSN(0) {
				t.Fatalf("%+v", m)
			}
		}
	})
}
