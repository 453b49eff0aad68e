package test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// A standby takes over: soon after an orderly stop and after a kill -9, and after the leader's machine has vanished within the
// session timeout and a little more. No event waits longer than that. On a quiet machine the little more is about 1 s.
func TestTakeover(t *testing.T) {
	t.Parallel()
	const timeout, grace = 2 * time.Second, 3 * time.Second
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	flag := "--session-timeout=" + timeout.String()
	elsewhere := []string{flag, "--database-url=" + w.Database, "--nats-url=" + sandbox.JetStream(t).URL()} // past the proxies
	halt := pace(t, w, 1)
	leader := w.Start(elsewhere...)
	leads(t, leader)
	for _, c := range []struct {
		name  string
		end   func(leader *harness.Relay)
		next  []string
		limit time.Duration
	}{
		{"SIGTERM", func(l *harness.Relay) { stopped(t, l) }, elsewhere, grace},
		{"kill -9", func(l *harness.Relay) { l.Crash() }, []string{flag}, grace},
		{"machine vanished", func(*harness.Relay) { w.PGProxy.Freeze(); w.NATSProxy.Freeze() }, elsewhere, timeout + grace},
	} {
		standby := w.Start(c.next...)
		standby.WaitLog("standing by")
		w.WaitCount(w.Count() + 50)
		from := w.Count()
		began := time.Now()
		c.end(leader)
		leads(t, standby)
		took := time.Since(began)
		w.WaitCount(w.Count() + 50)
		waited := longestWait(t, w, from)
		t.Logf("%s: the standby led after %s, the event that waited longest was stored after %s", c.name,
			took.Round(time.Millisecond), waited.Round(time.Millisecond))
		if took > c.limit || waited > c.limit {
			t.Errorf("%s: want both within %s", c.name, c.limit)
		}
		if c.name != "machine vanished" {
			leader = standby
			continue
		}
		w.PGProxy.Thaw() // the machine is back: its relay has lost the slot, and waits
		w.NATSProxy.Thaw()
		leader.WaitLog("standing by: the slot is held")
		w.WaitCount(w.Count() + 50)
		last := halt()
		w.ExpectIDs(eventIDs(1, last))
		w.WaitConfirmed()
		stopped(t, leader)
		stopped(t, standby)
	}
	if pids := watch.Holders(); len(pids) != 4 {
		t.Errorf("the slot was held by %v, want four walsenders, one after the other", pids)
	}
}

// longestWait returns the longest time from an event's commit to its place in the stream, of the messages from a sequence on.
func longestWait(t *testing.T, w *harness.World, from int) time.Duration {
	t.Helper()
	stream := w.Stream()
	last := stream.CachedInfo().State.LastSeq
	var longest time.Duration
	for seq := uint64(from); seq <= last; seq++ {
		var m *jetstream.RawStreamMsg
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Relay-Committed-At"))
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, m.Time.Sub(at))
	}
	return longest
}

// A standby is calm: one line when it begins to wait, next to no processor time, no errors in PostgreSQL's log. It can be
// stopped at any time.
func TestStandbyIsCalm(t *testing.T) {
	t.Parallel()
	const period = 5 * time.Second
	w := harness.New(t, harness.Config{Stream: window100ms})
	leader := w.Start()
	leads(t, leader)
	standby := w.Start()
	standby.WaitLog("standing by")
	before, said := cpuOf(t, standby), lines(standby.Log())
	insert(w, 1, 10)
	passes(t, period)
	used := cpuOf(t, standby) - before
	t.Logf("%s of processor time in %s, log:\n%s", used, period, standby.Log())
	if used > period/20 {
		t.Errorf("%s of processor time in %s", used, period)
	}
	if n := lines(standby.Log()) - said; n > 0 {
		t.Errorf("%d more lines", n)
	}
	if n := lines(standby.Log(), "standing by"); n != 1 {
		t.Errorf("it says %d times that it stands by", n)
	}
	database := w.Database[strings.LastIndex(w.Database, "/")+1 : strings.Index(w.Database, "?")]
	for _, line := range serverLog(t, "@"+database+" relay") {
		if strings.Contains(line, "ERROR") || strings.Contains(line, "FATAL") {
			t.Errorf("PostgreSQL's log: %s", line)
		}
	}
	w.ExpectIDs(eventIDs(1, 10))
	for _, relay := range []*harness.Relay{standby, leader} {
		began := time.Now()
		if err := relay.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code, took := relay.Exit(), time.Since(began); code != 0 || took > 2*time.Second {
			t.Errorf("exit %d after %s", code, took)
		}
	}
}
