package test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// A row that was inserted early and committed late has an LSN below what is confirmed already.
func TestC03_LateCommitOfEarlyRow(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start()
	begin := func(i int) pgx.Tx {
		tx, err := connect(t, w).Begin(t.Context())
		if err == nil {
			_, err = tx.Exec(t.Context(), insertSQL, eventID(i))
		}
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	commit := func(tx pgx.Tx) {
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first, second := begin(11), begin(12)
	insert(w, 1, 1)
	w.ExpectIDs([]string{eventID(1)})
	w.WaitConfirmed()
	stopped(t, relay)

	relay = w.Start()
	commit(first)
	w.ExpectIDs([]string{eventID(1), eventID(11)})
	insert(w, 2, 2)
	w.WaitCount(3)
	w.WaitConfirmed()
	relay.Crash()

	relay = w.Start()
	leads(t, relay)
	commit(second)
	w.ExpectIDs([]string{eventID(1), eventID(11), eventID(2), eventID(12)})
	w.WaitConfirmed()
	stopped(t, relay)
}

// The kill loop that proves I5: whatever was not confirmed when the relay is killed comes again, and nothing twice. A
// duplicate window of 100 ms, harder than the case's 10 m, leaves the doubles to the relay.
func TestC10_KillLoop(t *testing.T) {
	t.Parallel()
	const events = 2000
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	writer := connect(t, w)
	var writing sync.WaitGroup
	writing.Go(func() { insertPaced(t, writer, 1, events, 2*time.Millisecond) }) // or it were drained before the fifth kill
	defer writing.Wait()

	kills := 0
	for w.Count() < events {
		before := w.Count()
		relay := w.Start("--window=" + []string{"8192", "16"}[kills%2])
		leads(t, relay)
		if kills%3 == 2 { // right after it has begun to catch up
			w.WaitCount(min(before+1, events))
		} else {
			moment(t, 300*time.Millisecond, 700*time.Millisecond)
		}
		relay.Crash()
		kills++
	}
	writing.Wait()
	if kills < 5 {
		t.Errorf("only %d kills", kills)
	}
	relay := w.Start()
	w.ExpectIDs(eventIDs(1, events))
	w.WaitConfirmed()
	stopped(t, relay)
	if n := w.Count(); n != events {
		t.Errorf("%d messages at the end", n)
	}
}

// A refused event is not overtaken by its followers. Scaled: 100 events instead of 200.
func TestC21_RefusedEventKeepsItsPlace(t *testing.T) {
	t.Parallel()
	const events = 100
	w := harness.New(t, harness.Config{Stream: func(c *jetstream.StreamConfig) { c.MaxMsgs = 2; window100ms(c) }})
	watch := w.Watch()
	relay := w.Start()
	leads(t, relay)
	insertAtOnce(w, 1, events)
	stream := w.Stream()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var taken []harness.Message
	for len(taken) < events {
		<-tick.C
		m, ok := takeOldest(t, stream)
		if ok {
			taken = append(taken, m)
		}
		if t.Context().Err() != nil {
			return
		}
	}
	ids := make([]string, len(taken))
	for i, m := range taken {
		ids[i] = m.ID
	}
	if want := eventIDs(1, events); !slices.Equal(ids, want) {
		t.Error(harness.Difference(want, ids))
	}
	w.WaitConfirmed()
	watch.StopWith(taken)
	oneHolder(t, watch)
	stopped(t, relay)
	if n := w.Count(); n != 0 {
		t.Errorf("%d more messages", n)
	}
}

// takeOldest removes the oldest message of a stream and returns it; false if there is none.
func takeOldest(t *testing.T, stream jetstream.Stream) (harness.Message, bool) {
	t.Helper()
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs == 0 {
		return harness.Message{}, false
	}
	m, err := stream.GetMsg(t.Context(), info.State.FirstSeq)
	if err == nil {
		err = stream.DeleteMsg(t.Context(), m.Sequence)
	}
	if err != nil {
		t.Fatal(err)
	}
	return harness.Message{Sequence: m.Sequence, ID: m.Header.Get("Nats-Msg-Id"), Position: m.Header.Get("Relay-Position")}, true
}

// The rows of one COPY, and of one INSERT, share a WAL record: a relay that resumes among them leaves none out.
func TestC24_ResumeAmongRowsOfOneLSN(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: func(c *jetstream.StreamConfig) { c.MaxMsgs = 200; window100ms(c) }})
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start()
	leads(t, relay)
	rows := make([][]any, 500)
	for i := range rows {
		rows[i] = []any{eventID(i + 1), "order.created", []byte(`{"n": 1}`)}
	}
	copied, err := w.Conn.CopyFrom(t.Context(), pgx.Identifier{"outbox"}, []string{"id", "topic", "payload"}, pgx.CopyFromRows(rows))
	if err != nil || copied != 500 {
		t.Fatal(copied, err)
	}
	commit := walLSN(w)
	insertAtOnce(w, 501, 600)
	watch.Limit(commit)
	w.WaitCount(200)
	relay.WaitLog("maximum messages exceeded")
	relay.Crash()
	oneHolder(t, watch)

	raise := func(most int64) {
		config := w.Stream().CachedInfo().Config
		config.MaxMsgs = most
		if _, err := w.JS.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	raise(550) // in the middle of the second statement
	watch.Limit(0)
	relay = w.Start()
	w.WaitCount(550)
	relay.WaitLog("maximum messages exceeded")
	relay.Crash()
	raise(-1)
	relay = w.Start()
	w.ExpectIDs(eventIDs(1, 600))
	w.WaitConfirmed()
	stopped(t, relay)
	if n := w.Count(); n != 600 {
		t.Errorf("%d messages", n)
	}
}

// Events come in commit order, not in the order of their ids, and those of one transaction stay together. Scaled: 8
// writers with 60 transactions of up to 8 rows.
func TestC27_CommitOrderOfConcurrentWriters(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	truth := newTruth(w)
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start()
	w.Exec(`CREATE SEQUENCE numbers`)
	var writers sync.WaitGroup
	for range 8 {
		conn := connect(t, w)
		writers.Go(func() {
			for range 60 {
				if err := writeSlowly(t.Context(), conn); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	want := truth.ids(t)
	if slices.IsSorted(want) {
		t.Error("the transactions did not overlap: the test shows nothing")
	}
	w.ExpectIDs(want)
	var done []pglogrepl.LSN
	index := uint32(0)
	for _, m := range w.Messages() {
		_, position, err := outbox.ParsePosition(m.Position)
		if err != nil {
			t.Fatal(err)
		}
		if len(done) == 0 || done[len(done)-1] != position.CommitLSN {
			if slices.Contains(done, position.CommitLSN) {
				t.Fatalf("the transaction at %s is not in one piece", position.CommitLSN)
			}
			done, index = append(done, position.CommitLSN), 0
		}
		index++
		if position.Index != index && position.Index != index-1 {
			t.Fatalf("event %d of its transaction is at position %s", index, position)
		}
	}
	if len(done) != 8*60 {
		t.Errorf("%d transactions in the stream, want %d", len(done), 8*60)
	}
	w.WaitConfirmed()
	stopped(t, relay)
	oneHolder(t, watch)
}

// writeSlowly commits a transaction of some events whose ids were taken before others committed.
func writeSlowly(ctx context.Context, conn *pgx.Conn) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	for range 1 + rand.N(8) {
		_, err = tx.Exec(ctx, `INSERT INTO outbox (id, topic, payload) SELECT `+idSQL+`, 'order.created', '{}' FROM (SELECT nextval('numbers') AS i) n`)
		if err == nil {
			_, err = tx.Exec(ctx, `SELECT pg_sleep(random() * 0.004)`)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
	}
	return tx.Commit(ctx)
}
