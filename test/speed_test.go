package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// Memory is bounded by the window, whatever PostgreSQL holds back. The relays of these tests get a small window, so that a
// relay that collects anything else stands out against the size of the data.

const (
	smallWindow = 8 << 20 // bytes, as --window-bytes
	mib         = 1 << 20
	maxMiB      = 48 + smallWindow/mib // of resident memory, at most
)

// ownServers makes a PostgreSQL with settings of its own and a NATS server as a process. What is measured is not theirs.
func ownServers(t *testing.T, pg map[string]string, nats sandbox.NATSConfig) (*sandbox.Postgres, *sandbox.NATSProcess) {
	t.Helper()
	p, err := sandbox.StartPostgres(t.Context(), sandbox.PostgresConfig{Settings: pg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	n, err := sandbox.StartNATSProcess(t.Context(), nats)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return p, n
}

// program is the relay as it is built for use: what a test links, and the race detector, would be most of the memory that is
// measured.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "relay")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "..").CombinedOutput(); err != nil {
		t.Fatalf("build the relay: %v\n%s", err, out)
	}
	return path
}

// startProgram starts a relay with a small window; it is killed at the end of the test.
func startProgram(t *testing.T, w *harness.World, path string, flags ...string) *sandbox.Process {
	t.Helper()
	command := append([]string{"run", "--listen=", "--window-bytes", fmt.Sprint(smallWindow)}, flags...)
	p, err := sandbox.StartProcess(t.Context(), sandbox.ProcessConfig{Path: path, Args: w.Args(command...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close()
		if t.Failed() {
			t.Logf("relay %d:\n%s", p.PID(), p.Tail())
		}
	})
	return p
}

// stopProgram fails the test unless a relay stops with exit code 0.
func stopProgram(t *testing.T, p *sandbox.Process) {
	t.Helper()
	if err := p.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(t.Context()); err != nil || code != 0 {
		t.Errorf("exit %d, %v", code, err)
	}
}

// withinRSS fails the test if the resident memory of a running relay ever was above a limit in MiB. Of a dead process Linux
// tells the larger of its own and its parent's.
func withinRSS(t *testing.T, p *sandbox.Process, limit int64) {
	t.Helper()
	u, err := p.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if u.RSSBytes == 0 {
		t.Fatalf("the relay has ended: %s", p.Tail())
	}
	t.Logf("peak RSS %d MiB, limit %d", u.PeakRSSBytes/mib, limit)
	if u.PeakRSSBytes > limit*mib {
		t.Errorf("peak RSS %d MiB, want at most %d", u.PeakRSSBytes/mib, limit)
	}
}

// largeEnv makes the tests of memory take the sizes of their case, and minutes: RELAY_TEST_LARGE=1 go test ./test -run C16
const largeEnv = "RELAY_TEST_LARGE"

// scaled is a number of events for a whole run, and a tenth of it otherwise.
func scaled(n int) int {
	if os.Getenv(largeEnv) == "" {
		return n / 10
	}
	return n
}

// stored returns how many of a world's events are in the stream, in the order of their numbers from 1 on, and says where the
// order is broken. Bodies are not read: they can be more than a test may hold.
func stored(t *testing.T, w *harness.World) (n int, err error) {
	t.Helper()
	consumer, err := w.Stream().OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return 0, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return 0, err
	}
	defer messages.Stop()
	for total := w.Count(); n < total; n++ {
		m, err := messages.Next(jetstream.NextContext(t.Context()))
		if err != nil {
			return n, err
		}
		if got := m.Headers().Get("Nats-Msg-Id"); got != eventID(n+1) {
			return n, fmt.Errorf("message %d is event %s, want %s", n+1, got, eventID(n+1))
		}
	}
	return n, nil
}

// storedAll waits until the stream holds all events and checks that each is at its place, once.
func storedAll(t *testing.T, w *harness.World, r *sandbox.Process, events int, limit time.Duration) {
	t.Helper()
	sandbox.WaitFor(t, limit, fmt.Sprintf("%d messages in the stream", events), func() (bool, error) {
		if !r.Running() {
			t.Fatalf("the relay has ended:\n%s", r.Tail())
		}
		got := w.Count()
		return got >= events, fmt.Errorf("it has %d", got)
	})
	if n, err := stored(t, w); err != nil || n != events {
		t.Errorf("%d events in order, want %d: %v", n, events, err)
	}
}

// insertLarge commits the events from first to last in one transaction, each with a payload of so many bytes of x.
func insertLarge(w *harness.World, first, last, size int) {
	w.Exec(`INSERT INTO outbox (id, topic, payload) SELECT `+idSQL+`, 'order.created', jsonb_build_object('t', repeat('x', $3::int))
		FROM generate_series($1::int, $2::int) i`, first, last, size)
}

// TestC16_Memory: what the relay holds is the window, whatever PostgreSQL holds back.
func TestC16_Memory(t *testing.T) {
	relay := program(t)
	t.Run("one large transaction", func(t *testing.T) { largeTransaction(t, relay) })
	t.Run("outage with writers at full speed", func(t *testing.T) { outage(t, relay) })
	t.Run("large payloads", func(t *testing.T) { largePayloads(t, relay) })
}

// largeTransaction is spilled by the server to its disk. Killed in the middle, the next relay reads all of it again and stores
// the rest; it is not confirmed before its last event is stored.
func largeTransaction(t *testing.T, relay string) {
	pg, nats := ownServers(t, map[string]string{"logical_decoding_work_mem": "64kB"}, sandbox.NATSConfig{})
	w := harness.New(t, harness.Config{Postgres: pg, NATSURL: nats.URL(), NATSAddr: nats.Addr(), Stream: window100ms})
	events := scaled(300_000)
	insertLarge(w, 1, events, 1000)

	first := startProgram(t, w, relay)
	w.WaitCount(events / 3)
	withinRSS(t, first, maxMiB)
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	confirmed, done := w.ConfirmedLSN(), w.Count()
	if done >= events {
		t.Errorf("the relay was killed too late: %d of %d events were stored", done, events)
	}
	if commit := commitLSN(t, w); confirmed > commit {
		t.Errorf("%s is confirmed with %d of %d events stored: their transaction commits at %s", confirmed, done, events, commit)
	}

	second := startProgram(t, w, relay)
	storedAll(t, w, second, events, 4*time.Minute)
	w.WaitConfirmed()
	withinRSS(t, second, maxMiB)
	stopProgram(t, second)
}

// commitLSN is the commit LSN of the first event in the stream.
func commitLSN(t *testing.T, w *harness.World) pglogrepl.LSN {
	t.Helper()
	m, err := w.Stream().GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	_, position, err := outbox.ParsePosition(m.Header.Get("Relay-Position"))
	if err != nil {
		t.Fatal(err)
	}
	return position.CommitLSN
}

// outage freezes the broker: the window fills and no more is read, the rest stays in PostgreSQL.
func outage(t *testing.T, relay string) {
	pg, nats := ownServers(t, nil, sandbox.NATSConfig{})
	w := harness.New(t, harness.Config{Postgres: pg, NATSURL: nats.URL(), NATSAddr: nats.Addr(), Stream: window100ms})
	r := startProgram(t, w, relay, "--ack-timeout", "2s")
	insert(w, 1, 1)
	w.WaitCount(1)

	if err := nats.Process().Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	const step = 1000
	events := 1
	for begin := time.Now(); time.Since(begin) < time.Duration(scaled(5000))*time.Millisecond || events < 20*step; events += step {
		insertLarge(w, events+1, events+step, 1000)
	}
	withinRSS(t, r, maxMiB)
	if err := nats.Process().Thaw(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events waited", events)
	storedAll(t, w, r, events, 4*time.Minute)
	withinRSS(t, r, maxMiB)
	stopProgram(t, r)
}

// largePayloads are more than half of the window each, so they go one or two at a time.
func largePayloads(t *testing.T, relay string) {
	const size = 5 << 20
	pg, nats := ownServers(t, nil, sandbox.NATSConfig{MaxPayload: 8 << 20})
	w := harness.New(t, harness.Config{Postgres: pg, NATSURL: nats.URL(), NATSAddr: nats.Addr(), Stream: window100ms})
	events := scaled(100)
	for i := 1; i <= events; i++ {
		insertLarge(w, i, i, size)
	}
	r := startProgram(t, w, relay)
	storedAll(t, w, r, events, 2*time.Minute)
	// Garbage comes in pieces of 5 MiB, so the runtime's limit is what holds: the relay sets it to the window and 64 MiB. The
	// pages of the program's file are not in it.
	const file = 16
	withinRSS(t, r, smallWindow/mib+64+file)
	stopProgram(t, r)
}
