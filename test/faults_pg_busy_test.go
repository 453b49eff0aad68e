package test

import (
	"sync"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// A walsender that works through a large transaction of other tables answers nobody, in each session again. A relay that
// gives it no more time than the session timeout would begin that work again and again, for ever.
func TestServerSilentForLongerThanTheTimeout(t *testing.T) {
	t.Parallel()
	const timeout, silent = time.Second, 3 * time.Second
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	var mu sync.Mutex
	sessions, newest := map[int]bool{}, 0
	var timers sync.WaitGroup
	defer timers.Wait()
	w.PGProxy.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		mu.Lock()
		defer mu.Unlock()
		if m.ToServer || m.Copy == 0 || sessions[m.Connection] {
			return sandbox.Forward
		}
		sessions[m.Connection], newest = true, m.Connection
		timers.Go(func() {
			passes(t, silent)
			mu.Lock()
			defer mu.Unlock()
			if m.Connection == newest { // or another session's silence would end too early
				w.PGProxy.Release()
			}
		})
		return sandbox.Hold
	})
	insert(w, 1, 3)
	relay := w.Start("--session-timeout=" + timeout.String())
	w.ExpectIDs(eventIDs(1, 3))
	w.WaitConfirmed()
	mu.Lock()
	n := len(sessions)
	mu.Unlock()
	if n < 3 { // given up after 1 s, after 2 s, and not within 4 s; a slow machine adds some
		t.Errorf("%d sessions, want 3", n)
	}
	if n := lines(relay.Log(), "level=WARN", "PostgreSQL did not answer in time"); n < 2 {
		t.Errorf("it says %d times that the server was silent", n)
	}
	stopped(t, relay)
}
