package test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// forgetful is a broker in a process of its own that can be set back to an earlier state of its store.
type forgetful struct {
	t      *testing.T
	server *sandbox.NATSProcess
	store  string
	kept   string
	w      *harness.World
}

func startForgetful(t *testing.T) *forgetful {
	t.Helper()
	f := &forgetful{t: t, store: t.TempDir(), kept: filepath.Join(t.TempDir(), "kept")}
	var err error
	if f.server, err = sandbox.StartNATSProcess(t.Context(), sandbox.NATSConfig{StoreDir: f.store}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.server.Close() })
	f.w = harness.New(t, harness.Config{NATSURL: f.server.URL(), NATSAddr: f.server.Addr(), Stream: window100ms})
	return f
}

// keep copies the store, between two runs of the server.
func (f *forgetful) keep() {
	f.t.Helper()
	if err := f.server.Stop(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	if err := os.CopyFS(f.kept, os.DirFS(f.store)); err != nil {
		f.t.Fatal(err)
	}
	f.start()
}

// forget kills the server and has it begin again with the copy.
func (f *forgetful) forget() {
	f.t.Helper()
	if err := f.server.Kill(); err != nil {
		f.t.Fatal(err)
	}
	if err := os.RemoveAll(f.store); err != nil {
		f.t.Fatal(err)
	}
	if err := os.CopyFS(f.store, os.DirFS(f.kept)); err != nil {
		f.t.Fatal(err)
	}
	f.start()
}

func (f *forgetful) start() {
	f.t.Helper()
	if err := f.server.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	reachable(f.t, f.w)
}

// expectLoss fails the test unless the relay has said, once, as an error, which sequences are gone.
func expectLoss(t *testing.T, r *harness.Relay, first, last int) {
	t.Helper()
	const line = `level=ERROR msg="the broker lost events that it had acked`
	if n := strings.Count(r.Log(), line); n != 1 {
		t.Errorf("the log says %d times that the broker has lost events", n)
	}
	if want := "first_sequence=" + strconv.Itoa(first) + " last_sequence=" + strconv.Itoa(last) + " "; !strings.Contains(r.Log(), want) {
		t.Errorf("the log does not say %s", want)
	}
}

// The broker loses the end of what it has acked, and PostgreSQL was told of it: those events are gone, which the relay says
// loudly, with their sequences. It goes on with what comes.
func TestBrokerLosesWhatIsConfirmed(t *testing.T) {
	t.Parallel()
	f := startForgetful(t)
	w := f.w
	relay := w.Start("--session-timeout=3s", "--ack-timeout=1s")
	insert(w, 1, 10)
	w.WaitCount(10)
	w.WaitConfirmed()
	f.keep()
	insert(w, 11, 20)
	w.WaitCount(20)
	w.WaitConfirmed()
	f.forget()
	w.ExpectIDs(eventIDs(1, 10))
	insert(w, 21, 30)
	w.ExpectIDs(append(eventIDs(1, 10), eventIDs(21, 30)...))
	w.WaitConfirmed()
	expectLoss(t, relay, 11, 20)
	stopped(t, relay)
}

// The same, before PostgreSQL was told: it sends the events again, and they are stored again.
func TestBrokerLosesWhatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	f := startForgetful(t)
	w := f.w
	relay := w.Start("--session-timeout=20s", "--ack-timeout=1s")
	insert(w, 1, 10)
	w.WaitCount(10)
	w.WaitConfirmed()
	f.keep()
	w.PGProxy.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		if m.IsStatusUpdate() {
			return sandbox.Drop
		}
		return sandbox.Forward
	})
	insert(w, 11, 20)
	w.WaitCount(20)
	f.forget()
	w.PGProxy.OnPg(nil)
	w.ExpectIDs(eventIDs(1, 20))
	insert(w, 21, 30)
	w.ExpectIDs(eventIDs(1, 30))
	w.WaitConfirmed()
	expectLoss(t, relay, 11, 20)
	stopped(t, relay)
}

// With a confirm delay that is longer than the loss reaches back, PostgreSQL still has all that is lost: it is stored again,
// each event once, and only then confirmed.
func TestBrokerLosesLessThanTheConfirmDelay(t *testing.T) {
	t.Parallel()
	f := startForgetful(t)
	w := f.w
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start("--session-timeout=3s", "--ack-timeout=1s", "--confirm-delay=8s")
	insert(w, 1, 10)
	w.WaitCount(10)
	f.keep()
	insert(w, 11, 20)
	watch.Limit(walLSN(w))
	w.WaitCount(20)
	f.forget()
	w.ExpectIDs(eventIDs(1, 20))
	watch.Limit(0)
	insert(w, 21, 30)
	w.ExpectIDs(eventIDs(1, 30))
	w.WaitConfirmed()
	expectLoss(t, relay, 11, 20)
	stopped(t, relay)
	w.ExpectIDs(eventIDs(1, 30))
}

// What was stored and not confirmed is purged, and the relay dies: the next one cannot know, stores it again, and says so, once.
// A restart with nothing that was stored before is no cause to say anything.
func TestPurgeOfWhatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	const line = "the stream does not reach back to the slot's confirmed LSN"
	w := harness.New(t, harness.Config{Stream: window100ms})
	first := w.Start("--confirm-delay=1h")
	leads(t, first)
	insert(w, 1, 5)
	w.WaitCount(5)
	first.Crash()
	if err := w.Stream().Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored := time.Now()
	sandbox.WaitFor(t, harness.Limit, "the duplicate window passes", func() (bool, error) { return time.Since(stored) > 200*time.Millisecond, nil })
	second := w.Start()
	w.WaitCount(5)
	w.ExpectIDs(eventIDs(1, 5))
	w.WaitConfirmed()
	if n := strings.Count(second.Log(), line); n != 1 {
		t.Errorf("said %d times:\n%s", n, second.Log())
	}
	stopped(t, second)
	if err := w.Stream().Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := w.Start()
	leads(t, third)
	insert(w, 6, 7)
	w.WaitCount(2)
	w.WaitConfirmed()
	stopped(t, third)
	if strings.Contains(third.Log(), line) {
		t.Errorf("said for nothing:\n%s", third.Log())
	}
}
