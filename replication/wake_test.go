package replication

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
)

// TestWake: it ends the present read at once, or else the next one, and only that.
func TestWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		read := func(wait, want time.Duration, kind Kind) {
			t.Helper()
			start := time.Now()
			m, err := s.Next(start.Add(wait), nil)
			if err != nil || m != (Message{Kind: kind, WALEnd: m.WALEnd}) {
				t.Fatalf("%+v, %v, want kind %d", m, err, kind)
			}
			if took := time.Since(start); took != want {
				t.Errorf("returned after %s, want %s", took, want)
			}
		}
		read(time.Second, time.Second, None)

		s.Wake() // before the read
		s.Wake()
		read(time.Second, 0, None)
		read(time.Second, time.Second, None)

		time.AfterFunc(300*time.Millisecond, s.Wake) // in the middle of it
		read(time.Second, 300*time.Millisecond, None)

		s.Wake() // what has arrived stays for the read after that
		srv.send(t, keepaliveAt(1, false), keepaliveAt(2, false))
		synctest.Wait()
		read(time.Second, 0, None)
		read(time.Second, 0, Keepalive)
		s.Wake()
		read(time.Second, 0, None)
		read(time.Second, 0, Keepalive)
		read(time.Second, time.Second, None)
	})
}

// TestWake_Interleavings: whichever of the two sets its deadline first, the read ends, and a wake-up that comes late ends one
// more read but not all that follow.
func TestWake_Interleavings(t *testing.T) {
	t.Parallel()
	const far, slow = 100 * time.Millisecond, 10 * time.Millisecond
	wakes := func(deadline time.Time) bool { return deadline.Before(time.Now()) }
	for name, around := range map[string]func(s *Session, deadline time.Time, set func()){
		"Wake before the read's deadline": func(s *Session, deadline time.Time, set func()) {
			if !wakes(deadline) {
				s.Wake()
			}
			set()
		},
		"Wake after the read's deadline": func(s *Session, deadline time.Time, set func()) {
			set()
			if !wakes(deadline) {
				s.Wake()
			}
		},
		"the read begins before Wake's deadline": func(s *Session, deadline time.Time, set func()) {
			if wakes(deadline) {
				<-time.After(slow)
			}
			set()
		},
		"the read begins after Wake's deadline": func(s *Session, deadline time.Time, set func()) {
			set()
			if wakes(deadline) {
				<-time.After(slow)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, srv := open(t, testTimeout)
				srv.client.around = func(deadline time.Time, set func()) { around(s, deadline, set) }
				if strings.HasPrefix(name, "the read") {
					go s.Wake()
					synctest.Wait()
				}
				start := time.Now()
				deadline, reads := start.Add(far), 0
				for time.Now().Before(deadline) {
					if m, err := s.Next(deadline, nil); err != nil || m.Kind != None {
						t.Fatalf("%+v, %v", m, err)
					}
					if reads++; reads == 1 && time.Since(start) > 2*slow {
						t.Fatalf("woken after %s", time.Since(start))
					}
					if strings.HasPrefix(name, "Wake") {
						return // the next one would be woken again
					}
					if reads > 5 {
						t.Fatal("woken for ever")
					}
				}
			})
		})
	}
}

// TestWake_Race: what was set before Wake was called is seen after a read. A lost wake-up shows as a read that lasts until
// its deadline.
func TestWake_Race(t *testing.T) {
	t.Parallel()
	const rounds, wakers = 2000, 2
	s, _ := open(t, time.Hour)
	var set [wakers]atomic.Int64
	var begin [wakers]chan int64
	var wg sync.WaitGroup
	for w := range wakers {
		begin[w] = make(chan int64)
		wg.Go(func() {
			for round := range begin[w] {
				for range (round*7 + int64(w)*3) % 11 { // before the read, while it begins, while it waits
					runtime.Gosched()
				}
				set[w].Store(round)
				s.Wake()
			}
		})
	}
	defer wg.Wait()
	defer func() {
		for w := range wakers {
			close(begin[w])
		}
	}()
	for round := int64(1); round <= rounds; round++ {
		for w := range wakers {
			begin[w] <- round
		}
		for w := range wakers {
			for set[w].Load() < round { // it may be woken by what was meant for an earlier read
				start := time.Now()
				if m, err := s.Next(start.Add(limit), nil); err != nil || m.Kind != None {
					t.Fatalf("%+v, %v", m, err)
				}
				if time.Since(start) >= limit {
					t.Fatalf("round %d: a wake-up was lost", round)
				}
			}
		}
	}
}

// TestWake_Messages: reads that are woken all the time lose and tear no message.
func TestWake_Messages(t *testing.T) {
	t.Parallel()
	const messages = 5000
	s, srv := open(t, time.Hour)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.Wake()
				runtime.Gosched()
			}
		}
	})
	var stream []byte
	for i := range messages {
		stream = append(stream, encode(t, keepaliveAt(pglogrepl.LSN(i), false))...)
	}
	wg.Go(func() {
		for i := 0; len(stream) > 0; i++ {
			n := min(len(stream), 1+i%61)
			select {
			case <-stop:
				return
			case srv.writes <- stream[:n]:
			}
			stream = stream[n:]
		}
	})
	for want := pglogrepl.LSN(0); want < messages; {
		m, err := s.Next(time.Now().Add(limit), nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == None {
			continue
		}
		if m.Kind != Keepalive || m.WALEnd != want {
			t.Fatalf("%+v, want the keepalive %s", m, want)
		}
		want++
	}
}
