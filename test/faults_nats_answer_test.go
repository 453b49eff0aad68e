package test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/test/harness"
)

// C22: the stream has an event's id from elsewhere. That is no error: the event counts as stored, once.
func TestC22_DuplicateCountsAsStored(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{})
	watch := w.Watch()
	defer watch.Stop()
	elsewhere := []int{1, 7, 500, 1000}
	want := make([]string, 0, 1000)
	for _, i := range elsewhere {
		want = append(want, eventID(i))
		if _, err := w.JS.Publish(t.Context(), w.Subject("order.created"), []byte("1"), jetstream.WithMsgID(eventID(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i, next := 1, 0; i <= 1000; i++ {
		if next < len(elsewhere) && i == elsewhere[next] {
			next++
			continue
		}
		want = append(want, eventID(i))
	}
	insertAtOnce(w, 1, 1000)
	relay := w.Start("--session-timeout=2s")
	w.ExpectIDs(want)
	goesOn(t, w, relay)
	stopped(t, relay)
	for i, id := range want[:len(elsewhere)] {
		if n := strings.Count(relay.Log(), "counts as stored\" event_id="+id); n != 1 {
			t.Errorf("the log says %d times that event %d counts as stored", n, elsewhere[i])
		}
	}
	oneHolder(t, watch)
}

// answers stands in for JetStream on a subject that the stream does not have: it answers each message of a relay.
func answers(t *testing.T, w *harness.World, subject, text string) (halt func()) {
	t.Helper()
	sub, err := w.NC.Subscribe(subject, func(m *nats.Msg) {
		if err := m.Respond([]byte(text)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := sub.Unsubscribe(); err != nil {
			t.Error(err)
		}
	}
}

// C22 and its kind: what is neither the stream's acknowledgement nor a refusal of one message for good is asked again, and
// nothing is confirmed: a server that is just storing the id says so (10158), another stream or program answers.
func TestC22_AnswersThatStoreNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, code, says string }{
		"duplicate in process": {`{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"},"stream":"STREAM","seq":0}`, "refused", "10158"},
		"not JetStream":        {`hello`, "answer", "something answered"},
		"empty":                {``, "answer", "something answered"},
		"an empty object":      {`{}`, "answer", "something answered"},
		"no stream":            {`{"seq":2}`, "answer", "something answered"},
		"another stream":       {`{"stream":"ELSEWHERE","seq":2}`, "other_stream", "ELSEWHERE"},
		"another sequence":     {`{"stream":"STREAM","seq":77}`, "sequence", "predicted was 2"},
		"too large a number":   {`{"stream":"STREAM","seq":18446744073709551618}`, "answer", "something answered"},
		"no sequence":          {`{"stream":"STREAM"}`, "sequence", "predicted was 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.New(t, harness.Config{Stream: func(s *jetstream.StreamConfig) {
				window100ms(s)
				s.Subjects = []string{s.Name + ".order.>"}
			}})
			watch := w.Watch()
			defer watch.Stop()
			halt := answers(t, w, w.Subject("taken.>"), strings.ReplaceAll(c.text, "STREAM", w.StreamName))
			relay := w.Start("--session-timeout=2s")
			insert(w, 1, 1)
			w.WaitCount(1)
			w.WaitConfirmed()
			insertTopic(w, 2, "taken.x")
			watch.Limit(walLSN(w))
			insert(w, 3, 4)
			waitPause(t, relay, c.says, attempt(3, c.says))
			expectCode(t, pauses(t, relay), c.code, c.says)
			expectWaits(t, relay, c.says)
			w.ExpectIDs(eventIDs(1, 1))
			watch.Limit(0)
			halt()
			reconfigure(t, w, func(s *jetstream.StreamConfig) { s.Subjects = []string{w.Subjects()} })
			w.ExpectIDs(eventIDs(1, 4))
			goesOn(t, w, relay)
			stopped(t, relay)
			oneHolder(t, watch)
		})
	}
}
