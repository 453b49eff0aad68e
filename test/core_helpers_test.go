package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// eventID returns the id of a test's i-th event. eventIDs returns those from first to last.
func eventID(i int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012x", i) }

func eventIDs(first, last int) []string {
	var ids []string
	for i := first; i <= last; i++ {
		ids = append(ids, eventID(i))
	}
	return ids
}

// idSQL is eventID in SQL, of the integer expression i.
const idSQL = `('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid`

const insertSQL = `INSERT INTO outbox (id, topic, payload) VALUES ($1, 'order.created', '{"n": 1}')`

// insert commits the events from first to last, each in a transaction of its own.
func insert(w *harness.World, first, last int) {
	for i := first; i <= last; i++ {
		w.Exec(insertSQL, eventID(i))
	}
}

// insertAtOnce commits the events from first to last in one statement.
func insertAtOnce(w *harness.World, first, last int) {
	w.Exec(`INSERT INTO outbox (id, topic, payload) SELECT `+idSQL+`, 'order.created', jsonb_build_object('n', i) FROM generate_series($1::int, $2::int) i`,
		first, last)
}

// insertPaced commits the events from first to last inside the server, each in a transaction of its own, with a pause after
// each.
func insertPaced(t *testing.T, conn *pgx.Conn, first, last int, pause time.Duration) {
	t.Helper()
	_, err := conn.Exec(t.Context(), fmt.Sprintf(`DO $$ BEGIN FOR i IN %d..%d LOOP
		INSERT INTO outbox (id, topic, payload) VALUES (%s, 'order.created', jsonb_build_object('n', i)); COMMIT;
		PERFORM pg_sleep(%f); END LOOP; END $$`, first, last, idSQL, pause.Seconds()))
	if err != nil {
		t.Error(err) // a writer beside the test's own goroutine calls this too
	}
}

// window100ms is a duplicate window that hides no doubled event from a test.
func window100ms(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond }

// connect opens one more connection to the world's database.
func connect(t *testing.T, w *harness.World) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// terminate asks a relay to stop and returns its exit code.
func terminate(t *testing.T, r *harness.Relay) int {
	t.Helper()
	if err := r.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return r.Exit()
}

// stopped fails the test unless the relay stops with exit code 0.
func stopped(t *testing.T, r *harness.Relay) {
	t.Helper()
	if code := terminate(t, r); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// neighbours makes a table that is not published, and returns what commits a row to it.
func neighbours(w *harness.World) (write func()) {
	w.Exec(`CREATE TABLE neighbour (text text)`)
	return func() { w.Exec(`INSERT INTO neighbour VALUES (repeat('x', 100))`) }
}

// neighbourCommit waits until the slot has confirmed a neighbour's transaction that commits now. What the server was to
// send before it has been sent and settled by then.
func neighbourCommit(w *harness.World, write func()) {
	write()
	w.WaitConfirmed()
}

// moment waits for a random time: of a fault whose moment has to be any.
func moment(t testing.TB, least, most time.Duration) {
	t.Helper()
	timer := time.NewTimer(least + rand.N(most-least))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// leads waits until a relay holds the slot.
func leads(t *testing.T, r *harness.Relay) {
	t.Helper()
	sandbox.WaitFor(t, harness.Limit, "relay leads", func() (bool, error) {
		if !r.Running() {
			t.Fatalf("it has ended:\n%s", r.Log())
		}
		return strings.Contains(r.Log(), "msg=leading"), nil
	})
}

// walLSN returns the end of what has been written.
func walLSN(w *harness.World) pglogrepl.LSN { return w.LSN("SELECT pg_current_wal_insert_lsn()") }

// serverLog returns the lines of the shared PostgreSQL's log that have the text in them.
func serverLog(t *testing.T, text string) []string {
	t.Helper()
	log, err := sandbox.PG(t).Log()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// oneHolder fails the test unless one walsender has held the slot all the time.
func oneHolder(t *testing.T, watch *harness.Watch) {
	t.Helper()
	if pids := watch.Holders(); len(pids) != 1 {
		t.Errorf("the slot was held by %v, want one walsender all the time", pids)
	}
}

// committed returns the commit LSN of a stored event. Of the LSNs around an event it is the one that other tests' writes
// into the same WAL do not move: the event's transaction is confirmed if and only if it is less than the confirmed LSN.
func committed(t *testing.T, w *harness.World, id string) pglogrepl.LSN {
	t.Helper()
	for _, m := range w.Messages() {
		if m.ID != id {
			continue
		}
		_, position, err := outbox.ParsePosition(m.Position)
		if err != nil {
			t.Fatal(err)
		}
		return position.CommitLSN
	}
	t.Fatalf("event %s is not stored", id)
	return 0
}
