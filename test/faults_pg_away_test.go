package test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// doorman accepts connections and closes them at once.
type doorman struct {
	listener net.Listener
	done     sync.WaitGroup

	mu    sync.Mutex
	times []time.Time // of the connections
}

func startDoorman(t *testing.T) *doorman {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &doorman{listener: l}
	d.done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.times = append(d.times, time.Now())
			d.mu.Unlock()
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); d.done.Wait() })
	return d
}

func (d *doorman) visits() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.times)
}

// A server that closes each connection at once is asked less and less often, up to a bound.
func TestC43_ServerThatClosesAtOnce(t *testing.T) {
	t.Parallel()
	const tries = 8 // 0.1 s, 0.2 s, ... 3.2 s, 5 s: the cap is reached
	w := harness.New(t, harness.Config{Stream: window100ms})
	d := startDoorman(t)
	relay := w.Start("--database-url=postgres://someone:secret@"+d.listener.Addr().String()+"/shop?sslmode=disable", "--log-level=info")
	sandbox.WaitFor(t, harness.Limit, "the relay has tried often enough", func() (bool, error) { return len(d.visits()) >= tries, nil })
	visits := d.visits()
	for i, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000} {
		want *= time.Millisecond
		if gap := visits[i+1].Sub(visits[i]); gap < want*3/4 || gap > want*5/4+time.Second {
			t.Errorf("gap %d is %s, want about %s", i+1, gap, want)
		}
	}
	if n := lines(relay.Log()); n > 2*tries {
		t.Errorf("%d lines for %d tries:\n%s", n, tries, relay.Log())
	}
	if used := cpuOf(t, relay); used > time.Second { // its start is most of it
		t.Errorf("%s of processor time", used)
	}
	t.Logf("%d lines for %d tries, %s of processor time in %s", lines(relay.Log()), tries, cpuOf(t, relay),
		visits[tries-1].Sub(visits[0]).Round(time.Millisecond))
	stopped(t, relay)
}

// A session is no progress: sessions that end at once follow each other less and less often too.
func TestC43_SessionsThatEndAtOnce(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	relay := w.Start()
	insert(w, 1, 1)
	w.WaitCount(1)
	w.WaitConfirmed()
	var mu sync.Mutex
	var ends []time.Time
	w.PGProxy.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		if m.ToServer || m.Copy != 'w' {
			return sandbox.Forward
		}
		mu.Lock()
		defer mu.Unlock()
		ends = append(ends, time.Now())
		return sandbox.CutConnection
	})
	insert(w, 2, 3)
	passes(t, 8*time.Second)
	w.PGProxy.OnPg(nil)
	mu.Lock()
	n := len(ends)
	t.Logf("%d sessions in 8 s", n)
	if n < 4 || n > 9 || ends[n-1].Sub(ends[n-2]) < time.Second {
		t.Errorf("sessions ended at %v", ends)
	}
	mu.Unlock()
	w.ExpectIDs(eventIDs(1, 3))
	w.WaitConfirmed()
	stopped(t, relay)
}

// PostgreSQL may be away when the relay starts, and for long while it runs. What is wrong with the login is said at once.
func TestC43_PostgresAway(t *testing.T) {
	t.Parallel()
	pg := ownPostgres(t, nil)
	w := harness.New(t, harness.Config{Postgres: pg, Stream: window100ms})
	relay := w.Start("--database-url="+strings.Replace(w.Database, pg.Password(), "not-the-password", 1), "--session-timeout=2s")
	exits(t, relay, 1, "check user and password")
	if strings.Contains(relay.Log(), "not-the-password") {
		t.Error("it shows the password")
	}
	insert(w, 1, 3)
	_ = w.Conn.Close(context.Background())
	stopPostgres(t, pg, sandbox.Fast, 5*time.Second)

	// Straight to the server, where nothing listens: a proxy would accept.
	relay = w.Start("--database-url="+w.Database, "--log-level=info")
	relay.WaitLog("PostgreSQL cannot be used, trying again")
	says(t, "the relay", relay.Log(), "connection refused", "check host, port and network")
	standby := w.Start("--database-url=" + w.Database)
	standby.WaitLog("PostgreSQL cannot be used, trying again")
	if code := terminate(t, standby); code != 0 { // a stop needs no server
		t.Errorf("exit %d", code)
	}
	startPostgres(t, pg, w)
	w.ExpectIDs(eventIDs(1, 3))
	w.WaitConfirmed()

	before, used := lines(relay.Log()), cpuOf(t, relay)
	_ = w.Conn.Close(context.Background())
	stopPostgres(t, pg, sandbox.Immediate, 5*time.Second)
	passes(t, 8*time.Second)
	tries := lines(relay.Log(), "trying again")
	t.Logf("%d lines and %s of processor time in 8 s", lines(relay.Log())-before, cpuOf(t, relay)-used)
	if n := lines(relay.Log()) - before; n > 12 || cpuOf(t, relay)-used > 400*time.Millisecond {
		t.Errorf("%d lines and %s of processor time in 8 s, %d tries", n, cpuOf(t, relay)-used, tries)
	}
	startPostgres(t, pg, w)
	began := time.Now()
	insert(w, 4, 6)
	w.ExpectIDs(eventIDs(1, 6))
	if took := time.Since(began); took > 7*time.Second {
		t.Errorf("delivered %s after the server's return", took)
	}
	w.WaitConfirmed()
	stopped(t, relay)
}

// A relay that cannot reach PostgreSQL any more, half-open or refused, is stopped at once: what is stored is stored.
func TestC26_StopWithFrozenPostgres(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	relay := w.Start("--session-timeout=3s", "--drain-timeout=2s")
	insert(w, 1, 3)
	w.WaitCount(3)
	w.WaitConfirmed()
	w.PGProxy.Freeze()
	insert(w, 4, 6)
	began := time.Now()
	if err := relay.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, took := relay.Exit(), time.Since(began); code != 0 || took > 3*time.Second {
		t.Errorf("exit %d after %s", code, took)
	}
	w.PGProxy.Thaw()
	relay = w.Start()
	w.ExpectIDs(eventIDs(1, 6))
	w.WaitConfirmed()
	stopped(t, relay)
}
