package test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// C34: the connection breaks again and again inside one large transaction. No answer that was lost holds the relay up.
func TestC34_CutInLargeTransaction(t *testing.T) {
	t.Parallel()
	const events, cuts, every = 20_000, 5, 1500
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	n, cut := 0, 0
	w.NATSProxy.OnNATS(func(m sandbox.NATSMessage) sandbox.Action { // one message at a time
		counts := m.Op == "HPUB" // a message is lost, then an answer, by turns
		if cut%2 == 1 {
			counts = acknowledges(m)
		}
		if !counts || cut == cuts {
			return sandbox.Forward
		}
		if n++; n < every {
			return sandbox.Forward
		}
		n = 0
		cut++
		return sandbox.CutConnection
	})
	relay := w.Start("--session-timeout=3s", "--ack-timeout=2s", "--window=1024")
	leads(t, relay)
	insertAtOnce(w, 1, events)
	w.ExpectIDs(eventIDs(1, events))
	goesOn(t, w, relay)
	w.NATSProxy.OnNATS(nil)
	if cut != cuts {
		t.Errorf("the connection was cut %d times", cut)
	}
	for _, p := range pauses(t, relay) { // 10071: the server was still storing what a cut connection had brought
		if p.code != "connection" && !strings.Contains(p.reason, "(10071)") {
			t.Errorf("code %q: %s", p.code, p.reason)
		}
	}
	insert(w, events+1, events+10) // the window is free again
	w.ExpectIDs(eventIDs(1, events+10))
	w.WaitConfirmed()
	stopped(t, relay)
	oneHolder(t, watch)
}

// C32: a server without JetStream, at the relay's start and again later, is one that comes back.
func TestC32_WithoutJetStream(t *testing.T) {
	t.Parallel()
	on := true
	broker, w := ownNATS(t, sandbox.NATSConfig{
		NoJetStream: true, StoreDir: t.TempDir(), Configure: func(o *server.Options) { o.JetStream = on },
	}, window100ms)
	again := func(with bool) {
		broker.Stop()
		on = with
		if err := broker.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if with {
			reachable(t, w)
		}
	}
	watch := w.Watch()
	defer watch.Stop()
	again(false)
	insert(w, 1, 3)
	watch.Limit(w.ConfirmedLSN() + 1)
	relay := w.Start("--session-timeout=2s", "--ack-timeout=1s")
	waitPause(t, relay, "no JetStream", attempt(3, "JetStream is not enabled here"))
	expectReason(t, w, "broken", "stream_unknown")
	expectWaits(t, relay, "JetStream is not enabled here")
	watch.Limit(0)
	again(true)
	w.ExpectIDs(eventIDs(1, 3))
	goesOn(t, w, relay)

	again(false)
	insert(w, 4, 6)
	n := len(pauses(t, relay))
	sandbox.WaitFor(t, harness.Limit, "tries", func() (bool, error) { return len(pauses(t, relay)) >= n+3, nil })
	again(true)
	w.ExpectIDs(eventIDs(1, 6))
	expectPaced(t, pauses(t, relay))
	goesOn(t, w, relay)
	stopped(t, relay)
	oneHolder(t, watch)
}

// C32: the space that the account, or the server, may use is used up. It is raised while the server runs.
func TestC32_SpaceRaised(t *testing.T) {
	t.Parallel()
	const little, much = 256 << 10, 64 << 20
	t.Run("account", func(t *testing.T) {
		t.Parallel()
		broker, w := ownNATS(t, sandbox.NATSConfig{}, window100ms)
		limit := func(bytes int64) {
			account, err := broker.Server().LookupAccount(server.DEFAULT_GLOBAL_ACCOUNT)
			if err != nil {
				t.Fatal(err)
			}
			err = account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {
				MaxMemory: 1 << 20, MaxStore: bytes, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
				MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		limit(little)
		outOfSpace(t, w, func() { limit(much) })
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		var options *server.Options
		broker, w := ownNATS(t, sandbox.NATSConfig{Configure: func(o *server.Options) {
			o.JetStreamMaxStore = little
			options = o.Clone()
		}}, window100ms)
		outOfSpace(t, w, func() {
			options.JetStreamMaxStore = much
			if err := broker.Server().ReloadOptions(options); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// outOfSpace fills a broker until it refuses, then has it raise its limit.
func outOfSpace(t *testing.T, w *harness.World, raise func()) {
	t.Helper()
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start("--session-timeout=2s", "--ack-timeout=1s")
	leads(t, relay)
	insertAtOnce(w, 1, 3000)
	watch.Limit(walLSN(w))
	insert(w, 3001, 3003)
	waitPause(t, relay, "no space", func(p pause) bool { return p.attempt >= 3 && p.code == "refused" })
	expectWaits(t, relay, "")
	if n := w.Count(); n == 0 || n >= 3000 {
		t.Errorf("%d messages fit", n)
	}
	watch.Limit(0)
	raise()
	w.ExpectIDs(eventIDs(1, 3003))
	goesOn(t, w, relay)
	stopped(t, relay)
	oneHolder(t, watch)
}
