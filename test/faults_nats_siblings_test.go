package test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// The user may not publish to one event's subject: the refusal arrives beside the message, which gets no answer.
func TestC11_NoPermissionOnSubject(t *testing.T) {
	t.Parallel()
	const user, password = "relay", "pw-of-the-user"
	var options *server.Options
	deny := func(o *server.Options, subjects ...string) *server.Options {
		o = o.Clone()
		o.Users = []*server.User{{Username: user, Password: password, Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: subjects},
		}}}
		return o
	}
	broker, err := sandbox.StartNATS(t.Context(), sandbox.NATSConfig{Configure: func(o *server.Options) {
		options = o.Clone()
		o.Users = deny(o, "*.secret.>").Users
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close() })
	w := harness.New(t, harness.Config{
		NATSURL: "nats://" + user + ":" + password + "@" + broker.Addr(), NATSAddr: broker.Addr(), Stream: window100ms,
	})
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start("--session-timeout=2s", "--ack-timeout=1s")
	insert(w, 1, 2)
	w.WaitCount(2)
	w.WaitConfirmed()
	insertTopic(w, 3, "secret.x")
	watch.Limit(walLSN(w))
	insert(w, 4, 5)
	waitPause(t, relay, "no permission", func(p pause) bool { return p.code == "permission" && p.attempt >= 3 })
	expectCode(t, pauses(t, relay), "permission", w.Subject("secret.x"))
	expectWaits(t, relay, w.Subject("secret.x"))
	w.ExpectIDs(eventIDs(1, 2))
	if strings.Contains(relay.Log(), password) {
		t.Error("the log shows the password")
	}
	watch.Limit(0)
	if err := broker.Server().ReloadOptions(deny(options)); err != nil {
		t.Fatal(err)
	}
	reachable(t, w)
	w.ExpectIDs(eventIDs(1, 5))
	goesOn(t, w, relay)
	stopped(t, relay)
	oneHolder(t, watch)
}

// A stream that does not answer (no_ack) is never taken for one that has stored, neither at the start nor when it becomes
// one while the relay runs.
func TestC20_StreamWithoutAcks(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: func(c *jetstream.StreamConfig) {
		window100ms(c)
		c.NoAck = true
	}})
	watch := w.Watch()
	defer watch.Stop()
	insert(w, 1, 3)
	watch.Limit(w.ConfirmedLSN() + 1)
	relay := w.Start("--session-timeout=2s", "--ack-timeout=1s")
	waitPause(t, relay, "no_ack", attempt(3, "no_ack"))
	expectReason(t, w, "broken", "stream_no_ack")
	expectWaits(t, relay, "no_ack")
	if n := w.Count(); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
	watch.Limit(0)
	reconfigure(t, w, func(c *jetstream.StreamConfig) { c.NoAck = false })
	w.ExpectIDs(eventIDs(1, 3))
	goesOn(t, w, relay)

	reconfigure(t, w, func(c *jetstream.StreamConfig) { c.NoAck = true })
	n := len(pauses(t, relay))
	insert(w, 4, 6)
	waitPause(t, relay, "no_ack again", func(p pause) bool {
		return len(pauses(t, relay)) > n && p.attempt >= 2 && strings.Contains(p.reason, "no_ack")
	})
	reconfigure(t, w, func(c *jetstream.StreamConfig) { c.NoAck = false })
	w.ExpectIDs(eventIDs(1, 6))
	expectPaced(t, pauses(t, relay))
	w.WaitConfirmed()
	stopped(t, relay)
	oneHolder(t, watch)
}

// Another program answers on the stream's own subjects, before the stream does. Its answers count for nothing.
func TestC22_AnotherResponder(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	halt := answers(t, w, w.Subjects(), "not an acknowledgement")
	relay := w.Start("--session-timeout=2s", "--ack-timeout=1s")
	leads(t, relay)
	insertAtOnce(w, 1, 5)
	waitPause(t, relay, "another one answers", func(p pause) bool { return p.code == "answer" })
	w.ExpectIDs(eventIDs(1, 5)) // the stream stores all the same: each try stores one and reads it back
	halt()
	insert(w, 6, 10)
	w.ExpectIDs(eventIDs(1, 10))
	expectPaced(t, pauses(t, relay))
	w.WaitConfirmed()
	stopped(t, relay)
	oneHolder(t, watch)
}
