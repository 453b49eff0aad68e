package replication

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/outbox"
)

const testTimeout = 9 * time.Second // a third of it is longer than movingPace

// relay is the owner's loop without what it relays: it reports and reads for as long as asked. each is called before every
// report, once a step, and says whether everything is settled.
func relay(t testing.TB, s *Session, srv *server, length, step time.Duration, each func() (settled bool)) []update {
	t.Helper()
	var all []update
	var ev outbox.Event
	for end := time.Now().Add(length); time.Now().Before(end); {
		settled := each()
		due, err := s.Report(time.Now(), settled)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range srv.updates(t) {
			if all = append(all, u); u.Ask {
				srv.send(t, keepaliveAt(0, false))
			}
		}
		if until := time.Now().Add(step); due.After(until) {
			due = until
		}
		for m := (Message{Kind: Other}); m.Kind != None; {
			if m, err = s.Next(due, &ev); err != nil {
				t.Fatalf("after %s: %v", length-time.Until(end), err)
			}
		}
	}
	return all
}

// TestI2_WriteFlushApply: the three are one value, which never goes back and is 0/0 until something was confirmed.
func TestI2_WriteFlushApply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		random := rand.New(rand.NewPCG(1, 2))
		var highest pglogrepl.LSN
		check := func(want pglogrepl.LSN) {
			t.Helper()
			if err := s.Flush(time.Now()); err != nil {
				t.Fatal(err)
			}
			u := srv.nextUpdate(t)
			if u.Write != want || u.Flush != want || u.Apply != want {
				t.Fatalf("write %s, flush %s, apply %s, want %s", u.Write, u.Flush, u.Apply, want)
			}
			if s.Confirmed() != want {
				t.Fatalf("Confirmed is %s, want %s", s.Confirmed(), want)
			}
			if !u.Sent.Equal(time.Now()) {
				t.Fatalf("sent at %s, want %s", u.Sent, time.Now())
			}
		}
		check(0)
		srv.send(t, keepaliveAt(0x5000, true), walDataAt(0x6000, beginMessage(0x7000, time.Now())))
		for range 2 {
			if _, err := s.Next(time.Now().Add(time.Second), nil); err != nil {
				t.Fatal(err)
			}
		}
		check(0) // what was read is not confirmed
		for range 500 {
			low := pglogrepl.LSN(random.Uint64N(1 << 40))
			before := s.Confirmed()
			s.Confirm(low)
			if s.Confirmed() != before {
				t.Fatal("Confirmed tells what was not sent yet")
			}
			highest = max(highest, low)
			check(highest)
		}
		s.Confirm(0)
		check(highest)
		s.Confirm(1<<64 - 1)
		check(1<<64 - 1)
	})
}

// TestI2_Pace: updates never go back and never differ within themselves, at every pace.
func TestI2_Pace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		timeout     time.Duration
		settled     bool
		moves       bool // the confirmed LSN
		pace        time.Duration
		wantAsk     bool
		wantUpdates int // within a minute
	}{
		"settled and moving":                 {testTimeout, true, true, settledPace, false, 600},
		"moving behind events":               {testTimeout, false, true, movingPace, false, 60},
		"moving behind events, short":        {MinTimeout, false, true, MinTimeout / 3, false, 180},
		"settled and moving, short":          {MinTimeout, true, true, settledPace, false, 600},
		"settled":                            {testTimeout, true, false, testTimeout / 3, true, 20},
		"nothing moves and events wait":      {testTimeout, false, false, testTimeout / 3, true, 20},
		"nothing moves, the default timeout": {0, false, false, DefaultTimeout / 3, true, 18},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, srv := open(t, test.timeout)
				last, from := update{At: time.Now()}, pglogrepl.LSN(0x1000)
				all := relay(t, s, srv, time.Minute, 7*time.Millisecond, func() bool {
					if test.moves {
						from += 0x10
						s.Confirm(from)
						srv.send(t, keepaliveAt(from, false)) // it moves because something comes
					}
					return test.settled
				})
				if n := len(all); n < test.wantUpdates*9/10 || n > test.wantUpdates {
					t.Errorf("%d updates in a minute, want %d", n, test.wantUpdates)
				}
				for _, u := range all {
					if u.Write != u.Flush || u.Write != u.Apply || u.Write < last.Write || test.moves && u.Write == last.Write {
						t.Fatalf("update %+v\nafter %+v", u, last)
					}
					if u.Ask != test.wantAsk {
						t.Fatalf("update %+v: want reply requested %t", u, test.wantAsk)
					}
					if gap := u.At.Sub(last.At); gap < test.pace || gap > test.pace+7*time.Millisecond {
						t.Fatalf("%s between updates, want %s", gap, test.pace)
					}
					last = u
				}
			})
		})
	}
}

// TestReport_Answer: what the server asks for goes out with the next report, once, whatever else is due.
func TestReport_Answer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		settled   bool
		confirmed pglogrepl.LSN // 0: it does not move
	}{{true, 0x2000}, {false, 0x2000}, {true, 0}, {false, 0}} {
		synctest.Test(t, func(t *testing.T) {
			s, srv := open(t, testTimeout)
			s.Confirm(test.confirmed)
			srv.send(t, keepaliveAt(0x1000, true), keepaliveAt(0x1000, false))
			for _, wantUpdates := range []int{1, 0} {
				m, err := s.Next(time.Now().Add(time.Second), nil)
				if err != nil || m.Kind != Keepalive || m.WALEnd != 0x1000 {
					t.Fatalf("%+v, %v", m, err)
				}
				due, err := s.Report(time.Now(), test.settled)
				if err != nil {
					t.Fatal(err)
				}
				if want := time.Now().Add(testTimeout / 3); !due.Equal(want) {
					t.Errorf("the next is due at %s, want %s", due, want)
				}
				got := srv.updates(t)
				if len(got) != wantUpdates {
					t.Fatalf("%d updates, want %d", len(got), wantUpdates)
				}
				if wantUpdates == 1 && (got[0].Ask || got[0].Write != test.confirmed) {
					t.Errorf("the answer is %+v", got[0])
				}
			}
		})
	}
}

// TestReport_Due: what Report returns is when the next one is due.
func TestReport_Due(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		start := time.Now()
		report := func(at time.Duration, settled bool, wantDue time.Duration, wantUpdates int) {
			t.Helper()
			due, err := s.Report(start.Add(at), settled)
			if err != nil {
				t.Fatal(err)
			}
			if got := due.Sub(start); got != wantDue {
				t.Errorf("due after %s, want %s", got, wantDue)
			}
			if got := srv.updates(t); len(got) != wantUpdates {
				t.Errorf("%d updates, want %d", len(got), wantUpdates)
			}
		}
		const ms = time.Millisecond
		report(0, true, 3000*ms, 0)
		s.Confirm(1)
		report(10*ms, false, 1000*ms, 0)
		report(20*ms, true, 100*ms, 0)
		report(99*ms, true, 100*ms, 0)
		report(100*ms, true, 3100*ms, 1)
		report(101*ms, false, 3100*ms, 0)
		s.Confirm(2)
		report(102*ms, true, 200*ms, 0)
		report(102*ms, false, 1100*ms, 0)
		report(1100*ms, false, 4100*ms, 1)
		s.Confirm(1)
		report(1500*ms, true, 4100*ms, 0)
		report(4099*ms, true, 4100*ms, 0)
		report(4100*ms, true, 7100*ms, 1)
	})
}
