package test

import (
	"strings"
	"testing"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// acknowledges reports whether the message is a stream's answer to a relay's event.
func acknowledges(m sandbox.NATSMessage) bool {
	return m.Op == "MSG" && !m.ToServer && strings.HasPrefix(string(m.Body), `{"stream":`)
}

// The broker has stored an event, and the connection ends before it can say so. However often: the event is found in the
// stream and counts as stored, once, and what follows it is sent.
func TestC34_CutBetweenPublishAndAck(t *testing.T) {
	t.Parallel()
	const cuts = 12
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	n, cut, next := 0, 0, 3
	w.NATSProxy.OnNATS(func(m sandbox.NATSMessage) sandbox.Action {
		if !acknowledges(m) || cut == cuts {
			return sandbox.Forward
		}
		if n++; n < next {
			return sandbox.Forward
		}
		cut++
		n, next = 0, 2+cut*3%17 // at least one comes through: so the pause stays short
		return sandbox.CutConnection
	})
	relay := w.Start("--session-timeout=2s", "--ack-timeout=1s")
	leads(t, relay)
	insertAtOnce(w, 1, 500)
	w.ExpectIDs(eventIDs(1, 500))
	goesOn(t, w, relay)
	all := pauses(t, relay)
	if len(all) != cuts {
		t.Errorf("%d pauses, %d cuts", len(all), cuts)
	}
	for _, p := range all {
		if p.attempt != 1 || p.code != "connection" {
			t.Errorf("try %d, code %q: %s", p.attempt, p.code, p.reason)
		}
	}
	expectPaced(t, all)
	stopped(t, relay)
	oneHolder(t, watch)
}

// The same, with no answer at all that comes through: each try stores one event and finds it afterwards. That nothing waits
// any more ends the pause, and is said.
func TestC34_NoAckComesThrough(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	w.NATSProxy.OnNATS(func(m sandbox.NATSMessage) sandbox.Action {
		if acknowledges(m) {
			return sandbox.CutConnection
		}
		return sandbox.Forward
	})
	relay := w.Start("--session-timeout=2s", "--ack-timeout=1s")
	leads(t, relay)
	insertAtOnce(w, 1, 4)
	w.ExpectIDs(eventIDs(1, 4))
	goesOn(t, w, relay) // although the broker's answers are still cut off
	expectPaced(t, pauses(t, relay))
	w.NATSProxy.OnNATS(nil)
	insert(w, 5, 5)
	w.ExpectIDs(eventIDs(1, 5))
	w.WaitConfirmed()
	stopped(t, relay)
	oneHolder(t, watch)
}

// C34: what a large transaction took while its connection broke is given back: no more memory than without a break, nothing
// left in flight.
func TestC34_MemoryAfterCuts(t *testing.T) {
	t.Parallel()
	const events, cuts = 20_000, 5
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start("--session-timeout=3s", "--ack-timeout=2s", "--window=2048")
	leads(t, relay)
	insertAtOnce(w, 1, events)
	w.WaitCount(events)
	w.WaitConfirmed()
	calm, err := relay.Usage()
	if err != nil {
		t.Fatal(err)
	}
	acked, cut := 0, 0
	w.NATSProxy.OnNATS(func(m sandbox.NATSMessage) sandbox.Action {
		if !acknowledges(m) || cut == cuts {
			return sandbox.Forward
		}
		if acked++; acked < 1000 {
			return sandbox.Forward
		}
		acked = 0
		cut++
		return sandbox.CutConnection
	})
	insertAtOnce(w, events+1, 2*events)
	w.ExpectIDs(eventIDs(1, 2*events))
	goesOn(t, w, relay)
	cutUp, err := relay.Usage()
	if err != nil {
		t.Fatal(err)
	}
	const slack = 32 << 20
	if cutUp.PeakRSSBytes > calm.PeakRSSBytes+slack {
		t.Errorf("at most %d MiB of memory with cuts, %d MiB before them", cutUp.PeakRSSBytes>>20, calm.PeakRSSBytes>>20)
	}
	if n := len(pauses(t, relay)); n < cuts || cut != cuts {
		t.Errorf("%d pauses, %d cuts, want %d", n, cut, cuts)
	}
	stopped(t, relay)
	if !strings.Contains(relay.Log(), `msg="stopping: storing what is read" cause="signal terminated" events_waiting=0`) {
		t.Error("events were left in the window")
	}
	oneHolder(t, watch)
}
