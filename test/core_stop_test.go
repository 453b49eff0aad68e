package test

import (
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// pace commits events one by one, at most one in 5 ms, until halt is called, which returns how many there are.
func pace(t *testing.T, w *harness.World, first int) (halt func() int) {
	t.Helper()
	conn := connect(t, w)
	quit, done := make(chan struct{}), make(chan int, 1)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		last := first - 1
		for {
			select {
			case <-quit:
				done <- last
				return
			case <-tick.C:
			}
			if _, err := conn.Exec(t.Context(), insertSQL, eventID(last+1)); err != nil {
				t.Error(err)
				done <- last
				return
			}
			last++
		}
	}()
	stopped := false
	halt = func() int {
		if stopped {
			return 0
		}
		stopped = true
		close(quit)
		return <-done
	}
	t.Cleanup(func() { halt() })
	return halt
}

// Nothing is doubled or lost by 20 orderly stops under 200 events/s, each within 5 s.
func TestC26_StopUnderLoad(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	halt := pace(t, w, 1)
	var slowest time.Duration
	for range 20 {
		relay := w.Start()
		leads(t, relay)
		moment(t, 0, 300*time.Millisecond)
		began := time.Now()
		stopped(t, relay)
		slowest = max(slowest, time.Since(began))
	}
	if slowest > 5*time.Second {
		t.Errorf("a stop took %s", slowest)
	}
	last := halt()
	relay := w.Start()
	w.ExpectIDs(eventIDs(1, last))
	w.WaitConfirmed()
	stopped(t, relay)
	if pids := watch.Holders(); len(pids) > 21 {
		t.Errorf("%d sessions of 21 relays", len(pids))
	}
}

// A relay whose broker does not answer stops when its drain timeout has passed, and leaves the events to the next one. A
// second signal ends it at once.
func TestC26_StopWithFrozenBroker(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start("--drain-timeout=2s", "--ack-timeout=500ms")
	insert(w, 1, 1)
	w.WaitCount(1)
	w.WaitConfirmed()
	w.NATSProxy.Freeze()
	insert(w, 2, 2)
	watch.Limit(walLSN(w))
	insert(w, 3, 6)
	relay.WaitLog("events_waiting=5 ") // they are read
	began := time.Now()
	stopped(t, relay)
	if took := time.Since(began); took < 1500*time.Millisecond || took > 5*time.Second {
		t.Errorf("it stopped after %s, its drain timeout is 2 s", took)
	}
	if !strings.Contains(relay.Log(), "level=WARN msg=\"the drain timeout has passed") || !strings.Contains(relay.Log(), "events_left=5") {
		t.Error("no warning tells that 5 events are left")
	}

	relay = w.Start("--drain-timeout=1h")
	leads(t, relay)
	signal := func() {
		if err := relay.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	signal()
	relay.WaitLog("stopping: storing what is read")
	signal()
	began = time.Now()
	if code := relay.Exit(); code != 1 || time.Since(began) > 2*time.Second {
		t.Errorf("second signal: exit %d after %s, want 1 at once", code, time.Since(began))
	}

	watch.Limit(0)
	w.NATSProxy.Thaw()
	relay = w.Start()
	w.ExpectIDs(eventIDs(1, 6))
	w.WaitConfirmed()
	stopped(t, relay)
}

// The position comes from the slot, not from where the server is now.
func TestC39_StartsWhereTheSlotIs(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start()
	insert(w, 1, 1)
	w.WaitCount(1)
	w.WaitConfirmed()
	stopped(t, relay)
	insert(w, 2, 101)
	relay = w.Start()
	w.ExpectIDs(eventIDs(1, 101))
	w.WaitConfirmed()
	stopped(t, relay)
	starts(t, w, 2)
}

// starts fails the test unless PostgreSQL has logged n starts of the slot, all at 0/0.
func starts(t *testing.T, w *harness.World, n int) {
	t.Helper()
	var found int
	for _, line := range serverLog(t, "received replication command: START_REPLICATION") {
		if !strings.Contains(line, w.Slot) {
			continue
		}
		found++
		if !strings.Contains(line, " LOGICAL 0/0") {
			t.Errorf("replication starts at a position of the relay's own: %s", line)
		}
	}
	if found != n {
		t.Errorf("%d starts of replication in the server's log, want %d", found, n)
	}
}

// However the relay ends, its slot stays, and what is committed meanwhile is delivered.
func TestC40_SlotSurvivesEveryEnd(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	last := 0
	for _, end := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
		relay := w.Start()
		insert(w, last+1, last+10)
		last += 10
		w.WaitCount(last)
		if err := relay.Signal(end); err != nil {
			t.Fatal(err)
		}
		if code := relay.Exit(); code != 0 && end != syscall.SIGKILL {
			t.Errorf("%v: exit %d", end, code)
		}
		var slots int
		err := w.Conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, w.Slot).Scan(&slots)
		if err != nil || slots != 1 {
			t.Fatalf("after %v: %d slots, %v", end, slots, err)
		}
		insert(w, last+1, last+10)
		last += 10
	}
	relay := w.Start()
	w.ExpectIDs(eventIDs(1, last))
	w.WaitConfirmed()
	stopped(t, relay)
}

// The confirmed LSN stays behind by the delay; a stop does not wait for it.
func TestConfirmDelay(t *testing.T) {
	t.Parallel()
	const delay = 1500 * time.Millisecond
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start("--confirm-delay=" + delay.String())
	leads(t, relay)
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
			updates = append(updates, update{time.Now(), m.Flush})
		}
		return sandbox.Forward
	})
	began := time.Now()
	insert(w, 1, 1)
	w.WaitCount(1)
	stored := time.Now()
	first := committed(t, w, eventID(1))
	sandbox.WaitFor(t, harness.Limit, "the event is confirmed", func() (bool, error) { return w.ConfirmedLSN() > first, nil })
	mu.Lock()
	i := slices.IndexFunc(updates, func(u update) bool { return u.lsn > first })
	if at := updates[i].at; at.Sub(began) < delay || at.Sub(stored) > delay+2*time.Second {
		t.Errorf("confirmed %s after the insert and %s after it was seen stored, the delay is %s", at.Sub(began), at.Sub(stored), delay)
	}
	mu.Unlock()
	w.PGProxy.OnPg(nil)
	stopped(t, relay)

	relay = w.Start("--confirm-delay=1h")
	insert(w, 2, 11)
	w.WaitCount(11)
	if now, second := w.ConfirmedLSN(), committed(t, w, eventID(2)); now > second {
		t.Errorf("%s is confirmed in spite of the delay: the event at %s too", now, second)
	}
	relay.Crash() // everything that waited for its delay comes again, and is found in the stream
	relay = w.Start("--confirm-delay=1h")
	insert(w, 12, 12)
	w.ExpectIDs(eventIDs(1, 12))
	began = time.Now()
	stopped(t, relay)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it stopped after %s", took)
	}
	if now, last := w.ConfirmedLSN(), committed(t, w, eventID(12)); now <= last {
		t.Errorf("after the stop %s is confirmed, not the event at %s", now, last)
	}
}
