package test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/test/harness"
)

// makeStream makes the world's stream once more.
func makeStream(t *testing.T, w *harness.World) {
	t.Helper()
	cfg := jetstream.StreamConfig{Name: w.StreamName, Subjects: []string{w.Subjects()}, Discard: jetstream.DiscardNew}
	window100ms(&cfg)
	if _, err := w.JS.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// deleteStream deletes the world's stream.
func deleteStream(t *testing.T, w *harness.World) {
	t.Helper()
	if err := w.JS.DeleteStream(t.Context(), w.StreamName); err != nil {
		t.Fatal(err)
	}
}

// C11: the stream does not exist when the relay starts. It is never made by itself; once it is there the relay goes on.
func TestC11_StreamMissingAtStart(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{})
	deleteStream(t, w)
	watch := w.Watch()
	defer watch.Stop()
	insert(w, 1, 3)
	watch.Limit(w.ConfirmedLSN() + 1)
	relay := w.Start("--session-timeout=2s")
	waitPause(t, relay, "no stream", attempt(4, "stream not found"))
	expectReason(t, w, "broken", "stream_missing")
	expectWaits(t, relay, "stream not found")
	watch.Limit(0)
	makeStream(t, w)
	w.ExpectIDs(eventIDs(1, 3))
	goesOn(t, w, relay)
	stopped(t, relay)
	oneHolder(t, watch)
}

// C11: the stream is deleted while the relay runs, or sealed, so that it has to be. One that is made again is empty: the
// relay says loudly which sequences are gone, sends what is not confirmed, and goes on there.
func TestC11_StreamDeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage       func(*testing.T, *harness.World)
		says, reason string
	}{
		"deleted": {deleteStream, "stream not found", "stream_missing"},
		"sealed": {func(t *testing.T, w *harness.World) {
			t.Helper()
			reconfigure(t, w, func(c *jetstream.StreamConfig) { c.Sealed = true })
		}, "is sealed", "stream_sealed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.New(t, harness.Config{Stream: window100ms})
			watch := w.Watch()
			defer watch.StopWith(nil) // of a test that fails early
			relay := w.Start("--session-timeout=2s")
			insert(w, 1, 5)
			w.WaitCount(5)
			w.WaitConfirmed()
			before := w.Messages()
			c.damage(t, w)
			insert(w, 6, 10)
			watch.Limit(walLSN(w))
			waitPause(t, relay, c.says, attempt(4, c.says))
			expectReason(t, w, "broken", c.reason)
			expectWaits(t, relay, c.says)
			if name == "sealed" {
				deleteStream(t, w)
			}
			watch.Limit(0)
			makeStream(t, w)
			w.ExpectIDs(eventIDs(6, 10))
			w.WaitConfirmed()
			insert(w, 11, 11)
			w.ExpectIDs(eventIDs(6, 11))
			w.WaitConfirmed()
			if n := strings.Count(relay.Log(), `level=ERROR msg="the broker lost events that it had acked`); n != 1 {
				t.Errorf("the log says %d times that the stream is shorter", n)
			}
			if !strings.Contains(relay.Log(), "first_sequence=1 last_sequence=5") {
				t.Error("the log does not name the sequences that are gone")
			}
			stopped(t, relay)
			watch.StopWith(w.Messages())
			expectMessages(t, eventIDs(1, 5), before)
		})
	}
}
