package test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// shutdown is a moment at which PostgreSQL is told to stop.
type shutdown struct {
	name   string
	mode   sandbox.StopMode
	delay  time.Duration // of the network between relay and PostgreSQL
	flags  []string
	frozen bool // the broker, while three events wait
	limit  time.Duration
}

// PostgreSQL can always stop, however the relay stands, and the relay goes on after it. A walsender that shuts down waits
// for the confirmation of all it has sent.
func TestC15_ShutdownCaughtUp(t *testing.T) {
	t.Parallel()
	const limit = 5 * time.Second
	shutdowns(t, []shutdown{
		{name: "fast", mode: sandbox.Fast, limit: limit},
		{name: "smart", mode: sandbox.Smart, limit: limit},
		{name: "immediate", mode: sandbox.Immediate, limit: limit},
		{name: "fast, 10 ms away", mode: sandbox.Fast, delay: 10 * time.Millisecond, limit: limit},
		{name: "fast, confirm delay", mode: sandbox.Fast, flags: []string{"--confirm-delay=1h"}, limit: limit},
	})
}

// The same with events that may not be confirmed.
func TestC15_ShutdownWithUnackedEvents(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Second
	full := []string{"--window=2"} // nothing is read, so the server's questions are not seen
	shutdowns(t, []shutdown{
		{name: "fast", mode: sandbox.Fast, frozen: true, limit: limit},
		{name: "smart", mode: sandbox.Smart, frozen: true, limit: limit},
		{name: "fast, 10 ms away", mode: sandbox.Fast, delay: 10 * time.Millisecond, frozen: true, limit: limit},
		{name: "fast, window full", mode: sandbox.Fast, flags: full, frozen: true, limit: limit},
	})
}

// shutdowns goes through the cases on one server, one after the other.
func shutdowns(t *testing.T, cases []shutdown) {
	t.Helper()
	pg := ownPostgres(t, nil)
	w := harness.New(t, harness.Config{Postgres: pg, Stream: window100ms})
	noise := neighbours(w)
	last := 0
	for _, c := range cases {
		w.PGProxy.Delay(c.delay)
		relay := w.Start(append([]string{"--ack-timeout=1s"}, c.flags...)...)
		leads(t, relay)
		last++
		insert(w, last, last)
		w.WaitCount(last)
		stored := last
		var limit pglogrepl.LSN
		if c.frozen {
			w.NATSProxy.Freeze()
			insert(w, last+1, last+1)
			limit = walLSN(w)
			insert(w, last+2, last+3)
			last += 3
			sent(t, w)
		} else {
			noise()
		}
		_ = w.Conn.Close(context.Background()) // a smart shutdown waits for it
		took := stopPostgres(t, pg, c.mode, c.limit)
		t.Logf("%s: PostgreSQL stopped after %s", c.name, took.Round(time.Millisecond))
		relay.WaitLog("PostgreSQL cannot be used, trying again")
		startPostgres(t, pg, w)
		if now := w.ConfirmedLSN(); limit != 0 && now >= limit {
			t.Errorf("%s: %s is confirmed, the events from %s on are not stored", c.name, now, limit)
		}
		if n := w.Count(); n != stored {
			t.Errorf("%s: %d messages, want %d", c.name, n, stored)
		}
		w.NATSProxy.Thaw()
		last++
		insert(w, last, last)
		w.ExpectIDs(eventIDs(1, last))
		stopped(t, relay)
	}
}

// sent waits until PostgreSQL has sent all that is written now to the relay that holds the slot, or as much as it takes.
func sent(t *testing.T, w *harness.World) {
	t.Helper()
	end, before := walLSN(w), pglogrepl.LSN(0)
	still := 0
	sandbox.WaitFor(t, harness.Limit, "PostgreSQL has sent the events", func() (bool, error) {
		now := w.LSN(`SELECT coalesce(max(sent_lsn), '0/0') FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid
			WHERE slot_name = $1`, w.Slot)
		if still++; now != before {
			before, still = now, 0
		}
		return now >= end || now > 0 && still > 50, nil
	})
}
