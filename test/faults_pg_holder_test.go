package test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// vanish has all present connections of a proxy lose every message, in both directions and without an end: half-open. New
// ones work.
func vanish(p *sandbox.Proxy) {
	var newest atomic.Int64
	var marked atomic.Bool
	p.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		number := int64(m.Connection)
		if m.Type == 0 || marked.Load() && number > newest.Load() {
			if marked.CompareAndSwap(false, true) {
				newest.Store(number - 1) // the first one that begins is the first that works
			}
			return sandbox.Forward
		}
		return sandbox.Hold // the end, too, when the server gives up
	})
}

// A connection whose other end has vanished without a word is given up within the session timeout, and another one takes
// its place.
func TestC04_HalfOpenConnection(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	for _, busy := range []bool{false, true} {
		w := harness.New(t, harness.Config{Stream: window100ms})
		watch := w.Watch()
		defer watch.Stop()
		relay := w.Start("--session-timeout=" + timeout.String())
		insert(w, 1, 1)
		w.WaitCount(1)
		w.WaitConfirmed()
		vanish(w.PGProxy)
		began := time.Now()
		last := 4
		insert(w, 2, last)
		if busy { // the server goes on to send, and hears nothing
			for range 20 {
				last++
				insert(w, last, last)
				passes(t, 20*time.Millisecond)
			}
		}
		w.ExpectIDs(eventIDs(1, last))
		took := time.Since(began)
		t.Logf("busy %t: delivered over another connection after %s", busy, took.Round(time.Millisecond))
		if limit := timeout + 4*time.Second; took > limit {
			t.Errorf("delivered after %s, want at most %s", took, limit)
		}
		w.WaitConfirmed()
		if n := lines(relay.Log(), "level=WARN", "session ended, another one follows"); n != 1 { // by either side's timeout
			t.Errorf("it says %d times that the session ended", n)
		}
		stopped(t, relay)
		if pids := watch.Holders(); len(pids) != 2 {
			t.Errorf("the slot was held by %v, want two walsenders, one after the other", pids)
		}
	}
}

// A slot that another program holds is waited for, without force, and taken when it is free.
func TestC09_SlotHeldByAnotherProgram(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	holder := hold(t, w)
	insert(w, 1, 3)
	relay := w.Start()
	relay.WaitLog("standing by")
	pid := fmt.Sprintf("pid %d", holder.PID())
	says(t, "the relay", relay.Log(), pid, "some_tool")
	said := lines(relay.Log())
	passes(t, 4*time.Second)
	if n := lines(relay.Log()) - said; n != 0 {
		t.Errorf("%d more lines:\n%s", n, relay.Log())
	}
	code, stdout, _ := w.Do("status")
	says(t, "status", stdout, fmt.Sprint(holder.PID()))
	t.Logf("status: exit %d\n%s", code, stdout)
	if pids := watch.Holders(); len(pids) != 1 || pids[0] != int32(holder.PID()) {
		t.Errorf("the slot was held by %v, want only pid %d", pids, holder.PID())
	}
	if n := w.Count(); n != 0 {
		t.Errorf("%d messages", n)
	}
	began := time.Now()
	if err := holder.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.ExpectIDs(eventIDs(1, 3))
	took := time.Since(began)
	t.Logf("delivered %s after the release", took.Round(time.Millisecond))
	if took > 3*time.Second {
		t.Errorf("delivered %s after the release", took)
	}
	stopped(t, relay)
}

// hold streams from the slot as another program does, without a word back, until it is closed.
func hold(t *testing.T, w *harness.World) *pgconn.PgConn {
	t.Helper()
	config, err := pgconn.ParseConfig(w.Database)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["replication"] = "database"
	config.RuntimeParams["application_name"] = "some_tool"
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	err = pglogrepl.StartReplication(t.Context(), conn, w.Slot, 0, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication, PluginArgs: []string{"proto_version '1'", "publication_names '" + w.Publication + "'"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// A slot whose relay is frozen is free after that relay's session timeout. A new relay waits for it.
func TestC09_SlotHeldByAFrozenRelay(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	w := harness.New(t, harness.Config{Stream: window100ms})
	old := w.Start("--session-timeout=" + timeout.String())
	insert(w, 1, 1)
	w.WaitCount(1)
	w.WaitConfirmed()
	began := time.Now()
	if err := old.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert(w, 2, 4)
	relay := w.Start() // as after a restart of a deployment that could not end the old one
	relay.WaitLog("standing by")
	w.ExpectIDs(eventIDs(1, 4))
	took := time.Since(began)
	t.Logf("delivered %s after the freeze", took.Round(time.Millisecond))
	if took > timeout+3*time.Second {
		t.Errorf("delivered %s after the freeze, the session timeout is %s", took, timeout)
	}
	if n := lines(relay.Log(), "standing by"); n != 1 {
		t.Errorf("it says %d times that it stands by", n)
	}
	stopped(t, relay)
	old.Crash()
}
