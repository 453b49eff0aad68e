package test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// An idle outbox does not hold the WAL of its busy neighbours. Scaled: 25 MB of noise instead of 200 MB.
func TestC01_IdleOutboxBusyNeighbours(t *testing.T) {
	t.Parallel()
	pg, err := sandbox.StartPostgres(t.Context(), sandbox.PostgresConfig{
		Settings: map[string]string{"min_wal_size": "32MB", "max_wal_size": "64MB"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pg.Close() })
	w := harness.New(t, harness.Config{Postgres: pg})
	watch := w.Watch()
	defer watch.Stop()
	w.Exec(`CREATE TABLE neighbour (text text)`)
	relay := w.Start()
	leads(t, relay)
	before := walLSN(w)
	for range 10 {
		w.Exec(`INSERT INTO neighbour SELECT repeat('x', 1000) FROM generate_series(1, 2500)`)
	}
	after := walLSN(w)
	w.Exec(`SELECT pg_switch_wal()`)
	w.Exec(`CHECKPOINT`)

	sandbox.WaitFor(t, harness.Limit, "the noise is confirmed", func() (bool, error) { return w.ConfirmedLSN() >= after, nil })
	sandbox.WaitFor(t, harness.Limit, "the WAL of the noise is gone", func() (bool, error) {
		w.Exec(`CHECKPOINT`) // writes the running transactions, without which restart_lsn cannot move
		restart := w.LSN(`SELECT restart_lsn FROM pg_replication_slots WHERE slot_name = $1`, w.Slot)
		var files int
		err := w.Conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'
			AND name < pg_walfile_name($1::pg_lsn) AND name >= pg_walfile_name($2::pg_lsn)`, after.String(), before.String()).Scan(&files)
		return restart >= after && files == 0, err
	})
	if n := w.Count(); n != 0 {
		t.Errorf("%d messages in the stream", n)
	}
	var rows int
	if err := w.Conn.QueryRow(t.Context(), `SELECT count(*) FROM outbox`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows in the outbox, %v", rows, err)
	}
	stopped(t, relay)
	oneHolder(t, watch)
}

// A keepalive's WAL end lies beyond an event that the broker has not acked yet. Scaled: 15 keepalives beyond the event,
// instead of 10 s of them.
func TestC02_KeepaliveWhilePublishIsInFlight(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	write := neighbours(w)
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start("--session-timeout=2s")
	insert(w, 1, 1)
	w.ExpectIDs(eventIDs(1, 1))
	w.WaitConfirmed()

	var limit atomic.Uint64
	var keepalives, updates atomic.Int32
	w.PGProxy.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		l := pglogrepl.LSN(limit.Load())
		switch {
		case l == 0:
		case m.Copy == 'k' && m.WALEnd > l:
			keepalives.Add(1)
		case m.IsStatusUpdate():
			updates.Add(1)
			if m.Flush >= l || m.Write >= l || m.Apply >= l {
				t.Errorf("the relay confirms %s/%s/%s, not less than %s, while the event before it is not stored", m.Write, m.Flush, m.Apply, l)
			}
		}
		return sandbox.Forward
	})
	w.NATSProxy.Freeze()
	insert(w, 2, 2)
	l1 := walLSN(w)
	limit.Store(uint64(l1))
	watch.Limit(l1)
	sandbox.WaitFor(t, harness.Limit, "15 keepalives beyond the event", func() (bool, error) {
		write()
		return keepalives.Load() >= 15 && updates.Load() >= 6, nil
	})
	relay.Crash()
	oneHolder(t, watch)
	watch.Limit(0)
	limit.Store(0)
	w.NATSProxy.Thaw()
	relay = w.Start("--session-timeout=2s")
	insert(w, 3, 3)
	w.ExpectIDs(eventIDs(1, 3))
	w.WaitConfirmed()
	stopped(t, relay)
}

// Confirming the end of a transaction, not its commit record's start: after a restart the server does not send it again.
// Waiting 3 s for a message that must not come is replaced by a neighbour's later transaction.
func TestC45_LastTransactionDoesNotComeBack(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	write := neighbours(w)
	watch := w.Watch()
	defer watch.Stop()
	w.PGProxy.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		if m.Copy == 'k' {
			return sandbox.Drop // so that only the transaction itself can have moved the position
		}
		return sandbox.Forward
	})
	relay := w.Start()
	insert(w, 1, 1)
	w.WaitCount(1)
	commit := committed(t, w, eventID(1))
	sandbox.WaitFor(t, harness.Limit, "more than the start of the commit record is confirmed", func() (bool, error) {
		return w.ConfirmedLSN() > commit, nil
	})
	for range 3 {
		stopped(t, relay)
		var rows atomic.Int32
		w.PGProxy.OnPg(func(m sandbox.PgMessage) sandbox.Action {
			if m.Pgoutput == 'I' {
				rows.Add(1)
			}
			return sandbox.Forward
		})
		relay = w.Start()
		leads(t, relay)
		neighbourCommit(w, write)
		if n := rows.Load(); n != 0 {
			t.Errorf("the server sent %d rows again", n)
		}
	}
	w.ExpectIDs(eventIDs(1, 1))
	stopped(t, relay)
	starts(t, w, 4)
}

// A Relation message carries LSN 0. The position moves all the while a backlog is caught up, and never back. I2: Write,
// Flush and Apply are one value. Scaled: 6 000 transactions, through a slow link so that it takes some seconds.
func TestC46_PositionMovesWhileCatchingUp(t *testing.T) {
	t.Parallel()
	const events = 6000
	w := harness.New(t, harness.Config{Stream: window100ms})
	insertPaced(t, w.Conn, 1, events, 0)
	end := walLSN(w)
	watch := w.Watch()
	defer watch.Stop()
	type update struct {
		at  time.Time
		lsn pglogrepl.LSN
	}
	var mu sync.Mutex
	var updates []update
	w.PGProxy.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		if m.IsStatusUpdate() {
			mu.Lock()
			defer mu.Unlock()
			if m.Write != m.Flush || m.Flush != m.Apply {
				t.Errorf("I2: write %s, flush %s, apply %s", m.Write, m.Flush, m.Apply)
			}
			updates = append(updates, update{time.Now(), m.Flush})
		}
		return sandbox.Forward
	})
	w.NATSProxy.Delay(15 * time.Millisecond)
	relay := w.Start("--window=64")
	w.WaitCount(events)
	sandbox.WaitFor(t, harness.Limit, "all is confirmed", func() (bool, error) { return w.ConfirmedLSN() >= end, nil })
	stopped(t, relay)

	mu.Lock()
	defer mu.Unlock()
	var moves []update
	for i, u := range updates {
		if i > 0 && u.lsn < updates[i-1].lsn {
			t.Errorf("I2: the relay went back from %s to %s", updates[i-1].lsn, u.lsn)
		}
		if i == 0 || u.lsn > updates[i-1].lsn {
			moves = append(moves, u)
		}
		if u.lsn >= end {
			break
		}
	}
	if len(moves) < 3 {
		t.Errorf("the position moved %d times", len(moves))
	}
	for i := 2; i < len(moves); i++ { // the first one may wait for the tail
		if gap := moves[i].at.Sub(moves[i-1].at); gap > 2500*time.Millisecond { // a status interval is 1 s
			t.Errorf("the position stood still for %s during the catch-up", gap)
		}
	}
	if n := len(watch.Confirmed()); n < 3 {
		t.Errorf("%d confirmed LSNs were seen during the catch-up", n)
	}
	w.ExpectIDs(eventIDs(1, events))
	oneHolder(t, watch)
}
