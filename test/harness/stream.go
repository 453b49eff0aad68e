package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// Message is a message of the stream.
type Message struct {
	Sequence uint64
	ID       string
	Subject  string
	Position string
	Body     string
	Header   map[string][]string
}

// Stream returns the stream.
func (w *World) Stream() jetstream.Stream {
	w.t.Helper()
	s, err := w.JS.Stream(w.t.Context(), w.StreamName)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// Messages reads the whole stream.
func (w *World) Messages() []Message {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), Limit)
	defer cancel()
	stream := w.Stream()
	last := stream.CachedInfo().State.LastSeq
	if stream.CachedInfo().State.Msgs == 0 {
		return nil
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	it, err := consumer.Messages()
	if err != nil {
		w.t.Fatal(err)
	}
	defer it.Stop()
	var all []Message
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			w.t.Fatal(fmt.Errorf("read stream after %d of %d messages: %w", len(all), last, err))
		}
		meta, err := m.Metadata()
		if err != nil {
			w.t.Fatal(err)
		}
		h := m.Headers()
		message := Message{
			Sequence: meta.Sequence.Stream, Subject: m.Subject(), Body: string(m.Data()), Header: h,
		}
		if v := h["Nats-Msg-Id"]; len(v) > 0 {
			message.ID = v[0]
		}
		if v := h["Relay-Position"]; len(v) > 0 {
			message.Position = v[0]
		}
		all = append(all, message)
		if meta.Sequence.Stream >= last || meta.NumPending == 0 {
			return all
		}
	}
}

// IDs returns the event ids in the stream, in order.
func (w *World) IDs() []string {
	w.t.Helper()
	messages := w.Messages()
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.ID
	}
	return ids
}

// Count returns how many messages the stream holds.
func (w *World) Count() int {
	w.t.Helper()
	info, err := w.Stream().Info(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return int(info.State.Msgs)
}

// WaitCount waits until the stream holds at least n messages.
func (w *World) WaitCount(n int) {
	w.t.Helper()
	sandbox.WaitFor(w.t, 2*Limit, fmt.Sprintf("%d messages in the stream", n), func() (bool, error) {
		got := w.Count()
		return got >= n, fmt.Errorf("it has %d", got)
	})
}

// ExpectIDs waits until the stream holds as many messages and fails unless they are exactly these, in this order.
func (w *World) ExpectIDs(want []string) {
	w.t.Helper()
	w.WaitCount(len(want))
	if got := w.IDs(); !slices.Equal(got, want) {
		w.t.Fatal(Difference(want, got))
	}
}

// Difference says how a stream differs from what was committed: lost, doubled and reordered events.
func Difference(want, got []string) error {
	count := map[string]int{}
	for _, id := range got {
		count[id]++
	}
	var lost, doubled, strange []string
	known := map[string]bool{}
	for _, id := range want {
		known[id] = true
		switch n := count[id]; {
		case n == 0:
			lost = append(lost, id)
		case n > 1:
			doubled = append(doubled, id)
		}
	}
	for _, id := range got {
		if !known[id] {
			strange = append(strange, id)
		}
	}
	var errs []error
	for what, ids := range map[string][]string{"lost": lost, "doubled": doubled, "not expected": strange} {
		if len(ids) > 0 {
			errs = append(errs, fmt.Errorf("%d %s: %s", len(ids), what, strings.Join(ids[:min(len(ids), 5)], " ")))
		}
	}
	if len(errs) == 0 && !slices.Equal(want, got) {
		for i := range want {
			if want[i] != got[i] {
				errs = append(errs, fmt.Errorf("order broken at message %d: want %s, got %s", i, want[i], got[i]))
				break
			}
		}
	}
	return errors.Join(errs...)
}
