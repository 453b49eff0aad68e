package replication

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
)

// step is the time that a test's Next takes at most, as the owner's loop would have it.
const step = 10 * time.Millisecond

// untilSilent reads until the session ends, for at most two timeouts, and returns how long that took.
func untilSilent(t *testing.T, s *Session, each func()) time.Duration {
	t.Helper()
	for start := time.Now(); time.Since(start) < 2*testTimeout; {
		each()
		m, err := s.Next(time.Now().Add(step), nil)
		if errors.Is(err, ErrSilent) {
			if !s.broken {
				t.Error("the session is not broken")
			}
			return time.Since(start)
		}
		if err != nil || m.Kind != None {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	return 0
}

// TestNext_Silent: a server that does not answer ends the session after the timeout, not before.
func TestNext_Silent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		asked := 0
		after := untilSilent(t, s, func() {
			if _, err := s.Report(time.Now(), true); err != nil {
				t.Fatal(err)
			}
			for _, u := range srv.updates(t) {
				if u.Ask {
					asked++
				}
			}
		})
		if after < testTimeout || after > testTimeout+2*step {
			t.Errorf("silent after %s, want %s", after, testTimeout)
		}
		if asked < 2 {
			t.Errorf("it was asked %d times", asked)
		}
	})
}

// TestNext_SilentWake: waking the session all the time hides no silence.
func TestNext_SilentWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, testTimeout)
		timer := time.NewTicker(step)
		defer timer.Stop()
		after := untilSilent(t, s, func() { <-timer.C; s.Wake() })
		if after < testTimeout || after > testTimeout+2*step {
			t.Errorf("silent after %s, want %s", after, testTimeout)
		}
	})
}

// TestNext_SilentSince: everything that arrives begins the wait anew.
func TestNext_SilentSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		for range 5 {
			if _, err := s.Next(time.Now().Add(testTimeout-step), nil); err != nil {
				t.Fatal(err)
			}
			srv.send(t, keepaliveAt(1, false))
			if m, err := s.Next(time.Now().Add(step), nil); err != nil || m.Kind != Keepalive {
				t.Fatalf("%+v, %v", m, err)
			}
		}
		if after := untilSilent(t, s, func() {}); after < testTimeout || after > testTimeout+2*step {
			t.Errorf("silent after %s, want %s", after, testTimeout)
		}
	})
}

// TestResumed: while nobody reads, the silence is ours.
func TestResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, testTimeout)
		for range 3 {
			<-time.After(3 * testTimeout)
			s.Resumed()
			if m, err := s.Next(time.Now().Add(testTimeout), nil); err != nil || m.Kind != None {
				t.Fatalf("%+v, %v", m, err)
			}
		}
		<-time.After(3 * testTimeout)
		if _, err := s.Next(time.Now().Add(step), nil); !errors.Is(err, ErrSilent) {
			t.Errorf("without Resumed: %v", err)
		}
	})
}

// TestNext_SilentWhileMoving: a server that has nothing to say speaks only when it is asked. Updates that go out because the
// confirmed LSN moves must not take the place of those that ask.
func TestNext_SilentWhileMoving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		confirmed := pglogrepl.LSN(1)
		relay(t, s, srv, 5*testTimeout, step, func() bool {
			confirmed++
			s.Confirm(confirmed)
			return false
		})
	})
}

// TestNext_SlowMessage: a message that takes longer than the timeout to arrive is not silence.
func TestNext_SlowMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size  int
		pause time.Duration
	}{
		"small": {20, testTimeout / 3},
		"large": {1 << 20, testTimeout / 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, srv := open(t, testTimeout)
				message := encode(t, walDataAt(1, append([]byte{'M'}, strings.Repeat("x", test.size)...)))
				var m Message
				for piece := max(1, len(message)/40); m.Kind == None; {
					n := min(piece, len(message))
					srv.writes <- message[:n]
					message = message[n:]
					var err error
					if m, err = s.Next(time.Now().Add(test.pause), nil); err != nil {
						t.Fatalf("%d bytes before the end: %v", len(message), err)
					}
				}
				if m.Kind != Other || len(message) > 0 {
					t.Errorf("%+v, %d bytes are left", m, len(message))
				}
			})
		})
	}
}

// TestNext_SilentInsideMessage: a server that stops in the middle of a message is silent from there.
func TestNext_SilentInsideMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		srv.writes <- encode(t, keepaliveAt(1, false))[:10]
		if after := untilSilent(t, s, func() {}); after < testTimeout || after > testTimeout+3*step {
			t.Errorf("silent after %s, want %s", after, testTimeout)
		}
	})
}
