package replication

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/seed-1cfd9858/relay/outbox"
)

var ignoreInternals = cmpopts.IgnoreUnexported(outbox.Event{})

// play gives the session messages of the stream, and returns what Next made of them.
func play(t *testing.T, s *Session, srv *server, messages ...pgproto3.BackendMessage) ([]Message, []outbox.Event) {
	t.Helper()
	srv.send(t, messages...)
	var all []Message
	var events []outbox.Event
	for range messages {
		var ev outbox.Event
		m, err := s.Next(time.Now().Add(limit), &ev)
		if err != nil {
			t.Fatalf("after %d messages: %v", len(all), err)
		}
		if all = append(all, m); m.Kind == Event {
			events = append(events, ev)
		}
	}
	return all, events
}

// twoTransactions is a stream with all that a relay needs, and what is made of it.
func twoTransactions() (stream []pgproto3.BackendMessage, messages []Message, events []outbox.Event) {
	first, second := time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC), time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC)
	stream = []pgproto3.BackendMessage{
		keepaliveAt(0x900, false),
		walDataAt(0x1000, beginMessage(0x1800, first)),
		walDataAt(0, outboxRelation()),
		walDataAt(0x1100, insertMessage(outboxOID, "a", "t1", "one")),
		walDataAt(0, relationMessage(otherOID, "orders", "id")),
		walDataAt(0x1200, insertMessage(otherOID, "7")),
		walDataAt(0x1300, insertMessage(outboxOID, "b", "t2", "two")),
		walDataAt(0x1300, insertMessage(outboxOID, "c", "t3", "three")),
		walDataAt(0x1800, commitMessage(0x1800, 0x1880)),
		keepaliveAt(0x1880, true),
		walDataAt(0x1100, beginMessage(0x1900, second)), // began before the first one ended
		walDataAt(0x1100, insertMessage(outboxOID, "d", "t4", "")),
		walDataAt(0x1900, commitMessage(0x1900, 0x1990)),
	}
	messages = []Message{
		{Kind: Keepalive, WALEnd: 0x900},
		{Kind: Begin},
		{Kind: Other},
		{Kind: Event},
		{Kind: Other},
		{Kind: Other},
		{Kind: Event},
		{Kind: Event},
		{Kind: Commit, EndLSN: 0x1880},
		{Kind: Keepalive, WALEnd: 0x1880},
		{Kind: Begin},
		{Kind: Event},
		{Kind: Commit, EndLSN: 0x1990},
	}
	event := func(id, topic, payload string, commit pglogrepl.LSN, index uint32, at time.Time) outbox.Event {
		return outbox.Event{
			ID: id, Subject: "outbox." + topic, Payload: []byte(payload), CommitTime: at,
			Position: outbox.Position{CommitLSN: commit, Index: index},
		}
	}
	events = []outbox.Event{
		event("a", "t1", "one", 0x1800, 0, first), event("b", "t2", "two", 0x1800, 1, first), event("c", "t3", "three", 0x1800, 2, first),
		event("d", "t4", "", 0x1900, 0, second),
	}
	return stream, messages, events
}

// TestNext_Transactions: an event's position is the commit LSN of its Begin and its index in the transaction.
func TestNext_Transactions(t *testing.T) {
	t.Parallel()
	s, srv := open(t, 0)
	stream, wantMessages, wantEvents := twoTransactions()
	messages, events := play(t, s, srv, stream...)
	if diff := cmp.Diff(wantMessages, messages); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(wantEvents, events, ignoreInternals, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if !s.status.requested {
		t.Error("the request for an answer was not noted")
	}
}

// TestC45_EndLSN: what may be confirmed after a transaction is where its commit record ends, not where it begins.
func TestC45_EndLSN(t *testing.T) {
	t.Parallel()
	s, srv := open(t, 0)
	messages, _ := play(t, s, srv, walDataAt(0x10, beginMessage(0x16B3748, time.Now())), walDataAt(0x20, commitMessage(0x16B3748, 0x16B3778)))
	if want := (Message{Kind: Commit, EndLSN: 0x16B3778}); messages[1] != want {
		t.Errorf("%+v, want %+v", messages[1], want)
	}
}

// TestC46_RelationAtZero: a Relation message comes with LSN 0, inside a transaction and outside; nothing goes back.
func TestC46_RelationAtZero(t *testing.T) {
	t.Parallel()
	s, srv := open(t, 0)
	s.Confirm(0x900)
	relation := walDataAt(0, outboxRelation())
	messages, events := play(t, s, srv,
		relation,
		walDataAt(0x1000, beginMessage(0x1800, time.Now())),
		relation,
		walDataAt(0x1100, insertMessage(outboxOID, "a", "t", "p")),
		relation,
		walDataAt(0x1200, insertMessage(outboxOID, "b", "t", "p")),
		walDataAt(0x1800, commitMessage(0x1800, 0x1880)),
		relation,
	)
	for _, m := range messages {
		if m.Kind == Other && m != (Message{Kind: Other}) {
			t.Errorf("a relation gives %+v", m)
		}
	}
	for i, ev := range events {
		if want := (outbox.Position{CommitLSN: 0x1800, Index: uint32(i)}); ev.Position != want {
			t.Errorf("position %s, want %s", ev.Position, want)
		}
	}
	if len(events) != 2 || messages[6].EndLSN != 0x1880 {
		t.Errorf("%d events, %+v", len(events), messages[6])
	}
	if err := s.Flush(time.Now()); err != nil {
		t.Fatal(err)
	}
	if u := srv.nextUpdate(t); u.Write != 0x900 || u.Flush != 0x900 || u.Apply != 0x900 {
		t.Errorf("confirmed %+v", u)
	}
}

// TestC48_OtherKinds: what a relay does not need is passed over, inside a transaction and outside, also kinds that do not
// exist yet, whatever is in them.
func TestC48_OtherKinds(t *testing.T) {
	t.Parallel()
	for _, kind := range []byte("MYOTUDzSEcAbPKr\x00\xff") {
		t.Run(fmt.Sprintf("%q", kind), func(t *testing.T) {
			t.Parallel()
			s, srv := open(t, 0)
			other := func(tail string) pgproto3.BackendMessage { return walDataAt(0x1100, append([]byte{kind}, tail...)) }
			messages, events := play(t, s, srv,
				other(""), other("\x00\x00\x40\x01N\x00\x01t"),
				walDataAt(0x1000, beginMessage(0x1800, time.Now())),
				walDataAt(0, outboxRelation()),
				other("\x00\x00\x40\x01N\x00\x01t"),
				walDataAt(0x1200, insertMessage(outboxOID, "a", "t", "p")),
				other("\xff\xff"),
				walDataAt(0x1300, insertMessage(outboxOID, "b", "t", "p")),
				walDataAt(0x1800, commitMessage(0x1800, 0x1880)),
				other(""),
			)
			var kinds []Kind
			for _, m := range messages {
				kinds = append(kinds, m.Kind)
			}
			want := []Kind{Other, Other, Begin, Other, Other, Event, Other, Event, Commit, Other}
			if diff := cmp.Diff(want, kinds); diff != "" {
				t.Fatal(diff)
			}
			if events[0].Position.Index != 0 || events[1].Position.Index != 1 {
				t.Error("what is passed over is counted")
			}
		})
	}
}

// TestNext_SplitMessages: bytes may come one at a time, with reads between them that end without a message.
func TestNext_SplitMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		stream, wantMessages, wantEvents := twoTransactions()
		var messages []Message
		var events []outbox.Event
		for _, b := range encode(t, stream...) {
			srv.writes <- []byte{b}
			for m := (Message{Kind: Other}); m.Kind != None; {
				var ev outbox.Event
				var err error
				if m, err = s.Next(time.Now().Add(2*time.Millisecond), &ev); err != nil {
					t.Fatal(err)
				}
				if m.Kind != None {
					messages = append(messages, m)
				}
				if m.Kind == Event {
					events = append(events, ev)
				}
			}
		}
		if diff := cmp.Diff(wantMessages, messages); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(wantEvents, events, ignoreInternals, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestNext_SplitAnywhere: a message in two parts, with a read in between, at every place.
func TestNext_SplitAnywhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := open(t, testTimeout)
		message := encode(t, walDataAt(0x1000, beginMessage(0x1800, time.Now())), walDataAt(0x1800, commitMessage(0x1800, 0x1880)))
		for at := range message {
			var kinds []Kind
			for _, part := range [][]byte{message[:at], message[at:]} {
				srv.writes <- part
				for m := (Message{Kind: Other}); m.Kind != None; {
					var err error
					if m, err = s.Next(time.Now().Add(2*time.Millisecond), nil); err != nil {
						t.Fatalf("split at %d: %v", at, err)
					}
					if m.Kind != None {
						kinds = append(kinds, m.Kind)
					}
				}
			}
			if diff := cmp.Diff([]Kind{Begin, Commit}, kinds); diff != "" {
				t.Fatalf("split at %d: %s", at, diff)
			}
		}
	})
}

// TestNext_TableError: a row that cannot be decoded names its transaction, and leaves the session sound.
func TestNext_TableError(t *testing.T) {
	t.Parallel()
	s, srv := open(t, 0)
	play(t, s, srv, walDataAt(0, beginMessage(0x1800, time.Now())), walDataAt(0, relationMessage(outboxOID, "outbox", "id", "topic")))
	srv.send(t, walDataAt(0x1100, insertMessage(outboxOID, "a", "t")))
	var unfit *outbox.TableError
	if _, err := s.Next(time.Now().Add(limit), new(outbox.Event)); !errors.As(err, &unfit) || s.broken {
		t.Fatalf("error %v, broken %t", err, s.broken)
	}
	messages, _ := play(t, s, srv, walDataAt(0x1800, commitMessage(0x1800, 0x1880)))
	if messages[0].Kind != Commit {
		t.Errorf("%+v", messages[0])
	}
}
