package test

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/test/harness"
)

// C11: no stream listens to the subject of one event. It waits, and so does what follows it, until a stream does.
func TestC11_NoStreamOnSubject(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: func(c *jetstream.StreamConfig) {
		window100ms(c)
		c.Subjects = []string{c.Name + ".orders.>"}
	}})
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start("--session-timeout=2s")
	insertTopic(w, 1, "orders.a")
	w.ExpectIDs(eventIDs(1, 1))
	w.WaitConfirmed()
	insertTopic(w, 2, "billing.x")
	watch.Limit(walLSN(w))
	insertTopic(w, 3, "orders.b")
	waitPause(t, relay, w.Subject("billing.x"), attempt(5, w.Subject("billing.x")))
	w.ExpectIDs(eventIDs(1, 1))
	expectCode(t, pauses(t, relay), "no_responders", w.Subject("billing.x"))
	expectWaits(t, relay, w.Subject("billing.x"))
	expectReason(t, w, "ok", "stream_subjects_partial")
	watch.Limit(0)
	reconfigure(t, w, func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, w.Subject("billing.>")) })
	w.ExpectIDs(eventIDs(1, 3))
	goesOn(t, w, relay)
	stopped(t, relay)
	oneHolder(t, watch)
}

// C20: a stream that is full and discards what is new refuses. What it refuses waits until there is space.
func TestC20_StreamFull(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit func(*jetstream.StreamConfig)
		says  string
		raise func(*testing.T, *harness.World)
	}{
		"messages": {
			limit: func(c *jetstream.StreamConfig) { c.MaxMsgs = 20 },
			says:  "maximum messages exceeded",
			raise: func(t *testing.T, w *harness.World) {
				t.Helper()
				reconfigure(t, w, func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
			},
		},
		"bytes": {
			limit: func(c *jetstream.StreamConfig) { c.MaxBytes = 8 << 10 },
			says:  "maximum bytes exceeded",
			raise: func(t *testing.T, w *harness.World) {
				t.Helper()
				reconfigure(t, w, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 })
			},
		},
		"purged": {
			limit: func(c *jetstream.StreamConfig) { c.MaxMsgs = 60 },
			says:  "maximum messages exceeded",
			raise: func(t *testing.T, w *harness.World) {
				t.Helper()
				if err := w.Stream().Purge(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
		},
		"messages of a subject": {
			limit: func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject, c.DiscardNewPerSubject = 20, true },
			says:  "maximum messages per subject exceeded",
			raise: func(t *testing.T, w *harness.World) {
				t.Helper()
				reconfigure(t, w, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = -1; c.DiscardNewPerSubject = false })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.New(t, harness.Config{Stream: func(s *jetstream.StreamConfig) {
				window100ms(s)
				c.limit(s)
			}})
			watch := w.Watch()
			defer watch.StopWith(nil) // of a test that fails early
			relay := w.Start("--session-timeout=2s")
			leads(t, relay)
			insertAtOnce(w, 1, 100)
			watch.Limit(walLSN(w))
			insertTopic(w, 101, "order.paid")
			waitPause(t, relay, c.says, attempt(4, c.says))
			expectCode(t, pauses(t, relay), "refused", c.says)
			expectWaits(t, relay, c.says)
			before := w.Messages()
			if n := len(before); n == 0 || n >= 100 {
				t.Errorf("%d messages are in the full stream", n)
			}
			watch.Limit(0)
			c.raise(t, w)
			left := w.Count()
			w.WaitCount(left + 101 - len(before))
			goesOn(t, w, relay)
			stopped(t, relay)
			all := slices.Concat(before[:len(before)-left], w.Messages())
			watch.StopWith(all)
			expectMessages(t, eventIDs(1, 101), all)
			oneHolder(t, watch)
		})
	}
}
