package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// replicate starts to stream a slot through a publication of the slot's name.
func replicate(t *testing.T, url, slot string) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), url+"&replication=database")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	err = pglogrepl.StartReplication(t.Context(), conn, slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + slot + "'"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// nextCommit reads up to the next commit and returns its end.
func nextCommit(t *testing.T, conn *pgconn.PgConn) pglogrepl.LSN {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		msg, err := conn.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		data, ok := msg.(*pgproto3.CopyData)
		if !ok || data.Data[0] != pglogrepl.XLogDataByteID {
			continue
		}
		x, err := pglogrepl.ParseXLogData(data.Data[1:])
		if err != nil {
			t.Fatal(err)
		}
		m, err := pglogrepl.Parse(x.WALData)
		if err != nil {
			t.Fatal(err)
		}
		if commit, ok := m.(*pglogrepl.CommitMessage); ok {
			return commit.TransactionEndLSN
		}
	}
}

func confirm(t *testing.T, conn *pgconn.PgConn, lsn pglogrepl.LSN) {
	t.Helper()
	err := pglogrepl.SendStandbyStatusUpdate(t.Context(), conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: lsn})
	if err != nil {
		t.Fatal(err)
	}
}

func TestHoldConfirmAbove(t *testing.T) {
	t.Parallel()
	pg := sandbox.PG(t)
	url, slot := sandbox.Database(t), sandbox.Name(t)
	conn := connect(t, url)
	exec(t, conn, "CREATE TABLE x (n int)")
	exec(t, conn, "CREATE PUBLICATION "+slot+" FOR TABLE x")
	exec(t, conn, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
	confirmed := func(want pglogrepl.LSN) func() (bool, error) {
		return func() (bool, error) {
			got := show(t, conn, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", slot)
			return got == want.String(), errors.New("confirmed is " + got)
		}
	}

	p := startProxy(t, pg.Addr())
	// sslmode=prefer: the proxy sees the request for encryption and its refusal.
	proxied := strings.Replace(strings.Replace(url, pg.Addr(), p.Addr(), 1), "sslmode=disable", "sslmode=prefer", 1)
	session := replicate(t, proxied, slot)
	exec(t, conn, "INSERT INTO x VALUES (1)")
	first := nextCommit(t, session)
	exec(t, conn, "INSERT INTO x VALUES (2)")
	second := nextCommit(t, session)

	held := p.HoldConfirmAbove(first)
	confirm(t, session, first)
	sandbox.WaitFor(t, limit, "the first confirmation", confirmed(first))
	select {
	case <-held:
		t.Fatal("held the confirmation of the LSN itself")
	default:
	}
	confirm(t, session, second)
	select {
	case <-held:
	case <-time.After(limit):
		t.Fatal("nothing was held")
	}
	confirm(t, session, second)
	if ok, err := confirmed(first)(); !ok {
		t.Error(err)
	}
	exec(t, conn, "INSERT INTO x VALUES (3)") // the other direction goes on
	third := nextCommit(t, session)
	p.Release()
	sandbox.WaitFor(t, limit, "the second confirmation", confirmed(second))
	confirm(t, session, third) // and nothing is held from now on
	sandbox.WaitFor(t, limit, "the third confirmation", confirmed(third))
}

func TestPgHookSeesTheServersMessages(t *testing.T) {
	t.Parallel()
	pg := sandbox.PG(t)
	url, slot := sandbox.Database(t), sandbox.Name(t)
	conn := connect(t, url)
	exec(t, conn, "CREATE TABLE x (n text)")
	exec(t, conn, "CREATE PUBLICATION "+slot+" FOR TABLE x")
	exec(t, conn, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)

	p := startProxy(t, pg.Addr())
	var seen strings.Builder // hooks run one at a time
	cut := make(chan struct{})
	p.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		if m.Copy != 'w' {
			return sandbox.Forward
		}
		seen.WriteByte(m.Pgoutput)
		if m.Pgoutput == 'I' && m.SizeBytes < 100_000 {
			t.Errorf("an insert of %d bytes", m.SizeBytes)
		}
		if m.Pgoutput == 'C' {
			close(cut)
			return sandbox.CutConnection
		}
		return sandbox.Forward
	})
	session := replicate(t, strings.Replace(url, pg.Addr(), p.Addr(), 1), slot)
	exec(t, conn, "INSERT INTO x VALUES (repeat('x', 100000))")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	inserts := 0
	for {
		msg, err := session.ReceiveMessage(ctx)
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		if err != nil {
			break
		}
		if data, ok := msg.(*pgproto3.CopyData); ok && data.Data[0] == 'w' && data.Data[25] == 'I' {
			inserts++
		}
	}
	<-cut
	if seen.String() != "BRIC" || inserts != 1 {
		t.Errorf("saw %q, %d inserts passed", seen.String(), inserts)
	}
}

func TestNATSHooks(t *testing.T) {
	t.Parallel()
	n := sandbox.JetStream(t)
	_, direct := jetStreamOf(t, n.URL())
	stream := createStream(t, direct)
	p := startProxy(t, n.Addr())
	nc, js := jetStreamOf(t, "nats://"+p.Addr())

	// The ack is held, the message is not.
	var acks atomic.Int32
	held := make(chan struct{})
	p.OnNATS(func(m sandbox.NATSMessage) sandbox.Action {
		if m.ToServer || m.Op != "MSG" || !strings.Contains(string(m.Body), fmt.Sprintf(`"stream":%q`, stream)) {
			return sandbox.Forward
		}
		acks.Add(1)
		close(held)
		return sandbox.Hold
	})
	future, err := js.PublishAsync(stream+".x", []byte("held"))
	if err != nil {
		t.Fatal(err)
	}
	<-held
	sandbox.WaitFor(t, limit, "the message in the stream", func() (bool, error) {
		return lastSequence(t, n.URL(), stream) == 1, nil
	})
	select {
	case <-future.Ok():
		t.Error("the ack was not held")
	default:
	}
	p.Release()
	select {
	case ack := <-future.Ok():
		if ack.Sequence != 1 || acks.Load() != 1 {
			t.Errorf("ack of %d, %d seen", ack.Sequence, acks.Load())
		}
	case <-time.After(limit):
		t.Error("no ack after the release")
	}

	// One message is dropped, its neighbours are not.
	p.OnNATS(func(m sandbox.NATSMessage) sandbox.Action {
		if m.ToServer && m.Op == "HPUB" && m.Subject == stream+".dropped" {
			if m.PayloadBytes != 200_000 || !strings.Contains(string(m.Body), "Nats-Msg-Id: one") {
				t.Errorf("%d bytes of payload, body %.100q", m.PayloadBytes, m.Body)
			}
			return sandbox.Drop
		}
		return sandbox.Forward
	})
	for _, subject := range []string{".x", ".dropped", ".y"} {
		_, err := js.PublishAsync(stream+subject, make([]byte, 200_000), jetstream.WithMsgID("one"+subject))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.FlushTimeout(limit); err != nil {
		t.Fatal(err)
	}
	sandbox.WaitFor(t, limit, "the neighbours in the stream", func() (bool, error) {
		return lastSequence(t, n.URL(), stream) == 3, nil
	})
}
