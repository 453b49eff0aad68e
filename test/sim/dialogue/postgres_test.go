package dialogue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/slot"
)

// database is a PostgreSQL with an outbox, a table of customers, a publication of both and a slot.
type database interface {
	config(t *testing.T) *pgconn.Config
	// commit writes rows in one transaction; others says how many customers come behind the first of them. ddl adds a column
	// before the second row.
	commit(t *testing.T, ids []string, others int, ddl bool)
	state(t *testing.T) slot.State
	checkpoint(t *testing.T)
	crash(t *testing.T)
	stop(t *testing.T) // begins a fast shutdown and does not wait
	start(t *testing.T)
	endSession(t *testing.T)
	explain(t *testing.T) // logs what it knows, for a script that fails
}

var names = slot.Config{Slot: "outbox_relay", Publication: "outbox_relay", Table: outbox.Table{Schema: "public", Name: "outbox"}}

// reader is a client in a script.
type reader struct {
	*transcript
	t    *testing.T
	db   database
	conn *pgconn.PgConn
	ends []pglogrepl.LSN // of the commits that were read, in order

	announced map[string]string // what a table's last announcement said
	at        []pglogrepl.LSN   // where their commit records begin
}

const patience = 30 * time.Second // more than any server needs, also on a busy machine

// open connects, and streams from a slot.
func (r *reader) open(timeout time.Duration, name string) bool {
	r.t.Helper()
	cfg := r.db.config(r.t)
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["wal_sender_timeout"] = fmt.Sprint(timeout.Milliseconds())
	conn, err := pgconn.ConnectConfig(r.t.Context(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	err = pglogrepl.StartReplication(r.t.Context(), conn, name, 0, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication, PluginArgs: []string{"proto_version '1'", `publication_names '"outbox_relay"'`},
	})
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) {
		r.add("start: %s %s", refusal.Severity, refusal.Code)
		return false
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.conn, r.announced = conn, map[string]string{}
	return true
}

// next returns what the server says next. ended says that it has ended the connection, or what it said last.
func (r *reader) next(wait time.Duration) (msg pgproto3.BackendMessage, ended string) {
	ctx, cancel := context.WithTimeout(r.t.Context(), wait)
	defer cancel()
	msg, err := r.conn.ReceiveMessage(ctx)
	var refusal *pgconn.PgError
	switch {
	case err == nil || pgconn.Timeout(err):
	case errors.As(err, &refusal):
		return nil, refusal.Severity + " " + refusal.Code
	default:
		return nil, "nothing more"
	}
	return msg, ""
}

// read notes n transactions.
func (r *reader) read(n int) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); n > 0; {
		msg, ended := r.next(time.Until(deadline))
		data, ok := msg.(*pgproto3.CopyData)
		if ended != "" || !ok {
			r.db.explain(r.t)
			r.t.Fatalf("wanted %d more transactions, got %T %s; read %v up to %v; so far %q", n, msg, ended, r.at, r.ends, *r.transcript)
		}
		if data.Data[0] == 'w' && r.note(data.Data[25:]) {
			n--
		}
	}
}

// note notes a message of pgoutput and reports whether it is a commit.
func (r *reader) note(b []byte) bool {
	switch b[0] {
	case 'B':
		r.at = append(r.at, lsn(b[1:]))
		r.add("begin")
	case 'C':
		at, end := lsn(b[2:]), lsn(b[10:])
		r.ends = append(r.ends, end)
		r.add("commit where begin said: %v, its end is later: %v", at == r.at[len(r.at)-1], end > at)
		return true
	case 'R':
		m, err := pglogrepl.Parse(b)
		if err != nil {
			r.t.Fatal(err)
		}
		rel, ok := m.(*pglogrepl.RelationMessage)
		if !ok {
			r.t.Fatalf("%T", m)
		}
		var columns []string
		for _, c := range rel.Columns {
			columns = append(columns, c.Name)
		}
		text := fmt.Sprintf("relation %s.%s %s", rel.Namespace, rel.RelationName, strings.Join(columns, " "))
		if r.announced[rel.RelationName] != text { // how often it is said again, unchanged, is the server's affair
			r.add("%s", text)
		}
		r.announced[rel.RelationName] = text
	case 'I':
		m, err := pglogrepl.Parse(b)
		if err != nil {
			r.t.Fatal(err)
		}
		var values []string
		row, ok := m.(*pglogrepl.InsertMessage)
		if !ok {
			r.t.Fatalf("%T", m)
		}
		for _, c := range row.Tuple.Columns {
			values = append(values, fmt.Sprintf("%c%s", c.DataType, c.Data))
		}
		r.add("insert %s", strings.Join(values, " "))
	default:
		r.add("%c", b[0])
	}
	return false
}

func lsn(b []byte) pglogrepl.LSN { return pglogrepl.LSN(binary.BigEndian.Uint64(b)) }

// silence notes whether any transaction comes in a time.
func (r *reader) silence(d time.Duration) {
	r.t.Helper()
	for deadline := time.Now().Add(d); time.Now().Before(deadline); {
		msg, ended := r.next(time.Until(deadline))
		if ended != "" {
			r.t.Fatal(ended)
		}
		if data, ok := msg.(*pgproto3.CopyData); ok && data.Data[0] == 'w' {
			r.add("not silent: %c", data.Data[25])
			return
		}
	}
	r.add("silence")
}

// update sends a status update.
func (r *reader) update(confirmed pglogrepl.LSN, ask bool) {
	r.t.Helper()
	err := pglogrepl.SendStandbyStatusUpdate(r.t.Context(), r.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: confirmed, WALFlushPosition: confirmed, WALApplyPosition: confirmed, ReplyRequested: ask,
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// keepalive waits for one, notes it, and returns its WAL end.
func (r *reader) keepalive(asks bool) pglogrepl.LSN {
	r.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		msg, ended := r.next(time.Until(deadline))
		if data, ok := msg.(*pgproto3.CopyData); ok {
			if data.Data[0] == 'k' && (data.Data[17] != 0) == asks {
				r.add("keepalive, asks %v", asks)
				return lsn(data.Data[1:])
			}
			continue
		}
		r.t.Fatalf("wanted a keepalive, got %T %s", msg, ended)
	}
}

// end notes how the server ends the stream.
func (r *reader) end() {
	r.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		msg, ended := r.next(time.Until(deadline))
		switch msg := msg.(type) {
		case *pgproto3.CopyData:
			continue
		case *pgproto3.CommandComplete:
			r.add("command complete %s", msg.CommandTag)
			continue
		case *pgproto3.CopyDone:
			r.add("copy done")
			continue
		case *pgproto3.ReadyForQuery:
			r.add("ready for query")
			return
		}
		if ended == "" {
			r.t.Fatalf("wanted the end, got %T", msg)
		}
		r.add("%s", ended)
		return
	}
}

// obey answers whatever the server asks, with all that it has, until it ends the stream.
func (r *reader) obey() {
	r.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		msg, ended := r.next(time.Until(deadline))
		switch msg := msg.(type) {
		case *pgproto3.CopyData:
			if msg.Data[0] == 'k' && msg.Data[17] != 0 {
				r.update(lsn(msg.Data[1:]), false)
			}
			continue
		case *pgproto3.CommandComplete:
			r.add("command complete %s", msg.CommandTag)
			continue
		}
		if ended == "" {
			r.t.Fatalf("wanted the end, got %T", msg)
		}
		r.add("%s", ended)
		return
	}
}

// leave ends the connection without a word more.
func (r *reader) leave() {
	_ = r.conn.Conn().Close()
	r.free()
}

// free waits until nobody holds the slot.
func (r *reader) free() {
	r.t.Helper()
	sandbox.WaitFor(r.t, patience, "the slot is free", func() (bool, error) { return !r.db.state(r.t).Slot.Active, nil })
}

// confirmed notes what the slot has confirmed: which end of a commit that was read.
func (r *reader) confirmed() {
	r.t.Helper()
	have := *r.db.state(r.t).Slot.ConfirmedFlushLSN
	known := "no end of a commit"
	for i, end := range r.ends {
		if have == end {
			known = fmt.Sprintf("the end of commit %d", i)
		}
	}
	r.add("confirmed is %s", known)
}

func (r *reader) reopen() {
	r.t.Helper()
	r.leave()
	r.open(time.Minute, names.Slot)
}
