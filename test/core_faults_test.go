package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// I7: a leader that was frozen while another took over can store nothing at a place of the other's when it wakes up, and
// goes on as a standby.
func TestI7_FreezeTakeoverThaw(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	halt := pace(t, w, 1)
	flag := "--session-timeout=" + timeout.String()
	a := w.Start(flag)
	leads(t, a)
	w.WaitCount(100)
	b := w.Start(flag)
	b.WaitLog("standing by")
	moment(t, 0, 50*time.Millisecond)
	if err := a.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	leads(t, b)
	if took := time.Since(began); took > timeout+2*time.Second {
		t.Errorf("the standby took over after %s", took)
	}
	n := w.Count()
	w.WaitCount(n + 200)
	if err := a.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a.WaitLog("standing by")
	n = w.Count()
	w.WaitCount(n + 200)
	last := halt()
	w.ExpectIDs(eventIDs(1, last))
	w.WaitConfirmed()
	if !a.Running() || !b.Running() {
		t.Error("a relay has ended")
	}
	if pids := watch.Holders(); len(pids) != 2 {
		t.Errorf("the slot was held by %v, want two walsenders, one after the other", pids)
	}
	stopped(t, b)
	insert(w, last+1, last+1)
	w.ExpectIDs(eventIDs(1, last+1)) // by the one that was frozen
	w.WaitConfirmed()
	stopped(t, a)
}

// A second relay waits while the first one leads, and takes over within 2 s after its death.
func TestSecondRunWaitsAndTakesOver(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	halt := pace(t, w, 1)
	a := w.Start()
	leads(t, a)
	b := w.Start()
	b.WaitLog("standing by")
	n := w.Count()
	w.WaitCount(n + 50)
	if strings.Contains(b.Log(), "msg=leading") {
		t.Error("both lead")
	}
	a.Crash()
	began := time.Now()
	leads(t, b)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the standby took over after %s", took)
	}
	n = w.Count()
	w.WaitCount(n + 50)
	w.ExpectIDs(eventIDs(1, halt()))
	w.WaitConfirmed()
	stopped(t, b)
	if pids := watch.Holders(); len(pids) != 2 {
		t.Errorf("the slot was held by %v, want two walsenders, one after the other", pids)
	}
}

// I4: commit order across failed epochs and sessions. The broker is stopped and started, connections to both servers are
// reset, at any moment of a load.
func TestI4_BrokerRestartAndCutUnderLoad(t *testing.T) {
	t.Parallel()
	const seconds = 8
	server, err := sandbox.StartNATS(t.Context(), sandbox.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	w := harness.New(t, harness.Config{NATSURL: server.URL(), NATSAddr: server.Addr(), Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	truth := newTruth(w)
	relay := w.Start("--session-timeout=3s", "--ack-timeout=2s", "--window=512")
	leads(t, relay)

	var enough atomic.Bool
	var writers sync.WaitGroup
	defer func() {
		enough.Store(true)
		writers.Wait()
	}()
	for writer := range 3 {
		conn := connect(t, w)
		writers.Go(func() {
			for i := 1; !enough.Load(); i++ {
				if err := writeGroup(t.Context(), conn, (writer+1)*1_000_000+10*i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	began := time.Now()
	for round := 0; time.Since(began) < seconds*time.Second; round++ {
		moment(t, 50*time.Millisecond, 600*time.Millisecond)
		switch round % 4 {
		case 0:
			w.NATSProxy.Cut()
		case 1:
			w.PGProxy.Cut()
		case 2:
			server.Stop()
			moment(t, 0, 300*time.Millisecond)
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 3:
			w.NATSProxy.Freeze()
			moment(t, 0, 300*time.Millisecond)
			w.PGProxy.Cut()
			w.NATSProxy.Thaw()
		}
	}
	enough.Store(true)
	writers.Wait()
	w.ExpectIDs(truth.ids(t))
	w.WaitConfirmed()
	if !relay.Running() {
		t.Error("the relay has ended")
	}
	stopped(t, relay)
	if strings.Contains(relay.Log(), "order broken") {
		t.Error("the relay reports a broken order")
	}
}

// writeGroup commits 1 to 9 events with the ids that follow first.
func writeGroup(ctx context.Context, conn *pgx.Conn, first int) error {
	_, err := conn.Exec(ctx, `INSERT INTO outbox (id, topic, payload) SELECT `+idSQL+`, 'order.created', jsonb_build_object('n', i)
		FROM generate_series($1::int, $2::int) i`, first, first+rand.N(9))
	if err == nil {
		_, err = conn.Exec(ctx, `SELECT pg_sleep(random() * 0.01)`)
	}
	return err
}

// An event that can never be stored stops the relay, which says how to leave that one out.
func TestPoisonHaltsAndSkipEvent(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	insert(w, 1, 3)
	w.Exec(`INSERT INTO outbox (id, topic, payload) SELECT ` + idSQL + `, CASE i WHEN 5 THEN 'two words' ELSE 'order.created' END, '{}'
		FROM generate_series(4, 6) i`)
	poison := walLSN(w)
	insert(w, 7, 8)
	watch.Limit(poison)

	relay := w.Start()
	if code := relay.Exit(); code != 4 {
		t.Fatalf("exit %d, want 4", code)
	}
	w.ExpectIDs(eventIDs(1, 4))
	if now, good := w.ConfirmedLSN(), committed(t, w, eventID(3)); now <= good {
		t.Errorf("%s is confirmed, the events before the poisoned transaction end after %s", now, good)
	}
	skip := regexp.MustCompile(`relay run --skip-event '(` + regexp.QuoteMeta(w.Slot) + `@\d+ [0-9A-F]+/[0-9A-F]+ \d+)'`).FindStringSubmatch(relay.Log())
	if skip == nil {
		t.Fatal("the log has no line to type")
	}
	for _, text := range []string{fmt.Sprintf("id=%q", eventID(5)), "halted at event", "blank"} {
		if !strings.Contains(strings.ReplaceAll(relay.Log(), `\"`, `"`), text) {
			t.Errorf("the log does not say %s", text)
		}
	}

	again := w.Start() // nothing has changed: it halts at the same event
	if code := again.Exit(); code != 4 || !strings.Contains(again.Log(), skip[1]) {
		t.Errorf("second run: exit %d", code)
	}
	watch.Limit(0)
	relay = w.Start("--skip-event", skip[1])
	w.ExpectIDs(append(eventIDs(1, 4), eventIDs(6, 8)...))
	w.WaitConfirmed()
	stopped(t, relay)
	if !strings.Contains(relay.Log(), `level=ERROR msg="event skipped as told`) {
		t.Error("the skipped event is not in the log as an error")
	}
	relay = w.Start() // the skipped event is behind it
	insert(w, 9, 9)
	w.ExpectIDs(append(eventIDs(1, 4), eventIDs(6, 9)...))
	w.WaitConfirmed()
	stopped(t, relay)
}
