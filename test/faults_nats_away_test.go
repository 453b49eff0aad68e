package test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// ownNATS starts a NATS server in this process for one test, and a world on it.
func ownNATS(t *testing.T, cfg sandbox.NATSConfig, stream func(*jetstream.StreamConfig)) (*sandbox.NATS, *harness.World) {
	t.Helper()
	server, err := sandbox.StartNATS(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server, harness.New(t, harness.Config{NATSURL: server.URL(), NATSAddr: server.Addr(), Stream: stream})
}

// natsProcess starts a NATS server in a process of its own for one test, and a world on it.
func natsProcess(t *testing.T, cfg sandbox.NATSConfig) (*sandbox.NATSProcess, *harness.World) {
	t.Helper()
	server, err := sandbox.StartNATSProcess(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server, harness.New(t, harness.Config{NATSURL: server.URL(), NATSAddr: server.Addr(), Stream: window100ms})
}

// C08: a broker that is stopped for longer than the session's timeout costs the session nothing.
func TestC08_BrokerStoppedLongerThanSession(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	server, w := natsProcess(t, sandbox.NATSConfig{})
	watch := w.Watch()
	defer watch.Stop()
	halt := pace(t, w, 1)
	relay := w.Start("--session-timeout="+timeout.String(), "--ack-timeout=1s")
	leads(t, relay)
	w.WaitCount(50)
	if err := server.Process().Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	moment(t, 2*timeout, 3*timeout)
	waitPause(t, relay, "no answer", func(p pause) bool { return p.code == "timeout" || p.code == "connection" })
	expectWaits(t, relay, "")
	if err := server.Process().Thaw(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	reachable(t, w)
	last := halt()
	w.ExpectIDs(eventIDs(1, last))
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("all were stored %s after the broker came back", took)
	}
	goesOn(t, w, relay)
	stopped(t, relay)
	oneHolder(t, watch)
	for _, line := range serverLog(t, "terminating walsender") {
		if strings.Contains(line, w.Slot) || strings.Contains(line, databaseName(w)) {
			t.Error(line)
		}
	}
}

// C07: NATS is away when the relay starts, and again later for long.
func TestC07_NATSAway(t *testing.T) {
	t.Parallel()
	server, w := ownNATS(t, sandbox.NATSConfig{}, window100ms)
	watch := w.Watch()
	defer watch.Stop()
	server.Stop()
	insert(w, 1, 3)
	relay := w.Start("--session-timeout=2s", "--ack-timeout=1s")
	leads(t, relay)
	away(t, w, relay, 3)
	expectReason(t, w, "broken", "nats_unreachable")
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	reachable(t, w)
	w.ExpectIDs(eventIDs(1, 3))
	goesOn(t, w, relay)

	server.Stop()
	insert(w, 4, 13)
	waitPause(t, relay, "of the longest kind", func(p pause) bool { return p.attempt >= 7 })
	expectWaits(t, relay, "connect to NATS at ")
	insert(w, 14, 14)
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	reachable(t, w)
	w.ExpectIDs(eventIDs(1, 14))
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("all were stored %s after the broker came back", took)
	}
	expectPaced(t, pauses(t, relay))
	goesOn(t, w, relay)
	if n := strings.Count(relay.Log(), "level=WARN"); n > len(pauses(t, relay))+2 { // and what it says of the stream
		t.Errorf("%d warnings for %d tries", n, len(pauses(t, relay)))
	}
	stopped(t, relay)
	oneHolder(t, watch)
}

// away waits until a relay has tried so often to reach a server that is not there.
func away(t *testing.T, w *harness.World, relay *harness.Relay, n int) {
	t.Helper()
	waitPause(t, relay, "no connection", attempt(n, "connect to NATS at "))
	for _, p := range pauses(t, relay) {
		if !strings.Contains(p.reason, w.NATSProxy.Addr()) {
			t.Errorf("the reason does not name the server: %s", p.reason)
		}
	}
}
