package test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// signIn is a NATS server of a test's own whose users can be changed while it runs.
type signIn struct {
	server  *sandbox.NATS
	options *server.Options
}

// startSignIn starts one that knows the users, and a world on it.
func startSignIn(t *testing.T, users ...*server.User) (*signIn, *harness.World) {
	t.Helper()
	s := &signIn{}
	var err error
	s.server, err = sandbox.StartNATS(t.Context(), sandbox.NATSConfig{Configure: func(o *server.Options) {
		s.options = o.Clone()
		o.Users = append([]*server.User{{Username: "owner", Password: "owner"}}, users...)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.server.Close() })
	w := harness.New(t, harness.Config{NATSURL: "nats://owner:owner@" + s.server.Addr(), NATSAddr: s.server.Addr(), Stream: window100ms})
	return s, w
}

// users changes the users, apart from the test's own. Those that are gone, or have another password, are disconnected.
func (s *signIn) users(t *testing.T, users ...*server.User) {
	t.Helper()
	o := s.options.Clone()
	o.Users = append([]*server.User{{Username: "owner", Password: "owner"}}, users...)
	if err := s.server.Server().ReloadOptions(o); err != nil {
		t.Fatal(err)
	}
}

// flagsOf make a relay of the world sign in.
func flagsOf(w *harness.World, password string) []string {
	return []string{
		"--session-timeout=2s", "--ack-timeout=1s", "--nats-url=nats://" + w.NATSProxy.Addr(), "--nats-user=relay", "--nats-password=" + password,
	}
}

// C07: a password that NATS does not take, at the start or only later, is waited for: NATS may be what is set up wrongly.
// The pause grows, the log says why and never shows the password.
func TestC07_SignInRefused(t *testing.T) {
	t.Parallel()
	const right, wrong = "the-right-password", "another-password"
	for name, atStart := range map[string]bool{"at start": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := right
			if atStart {
				known = wrong
			}
			s, w := startSignIn(t, &server.User{Username: "relay", Password: known})
			watch := w.Watch()
			defer watch.Stop()
			relay := w.Start(flagsOf(w, right)...)
			leads(t, relay)
			if !atStart {
				insert(w, 1, 5)
				w.WaitCount(5)
				w.WaitConfirmed()
				s.users(t, &server.User{Username: "relay", Password: wrong})
			}
			insert(w, 6, 10)
			watch.Limit(walLSN(w))
			waitPause(t, relay, "not allowed", attempt(5, "Authorization Violation"))
			expectWaits(t, relay, "Authorization Violation")
			watch.Limit(0)
			s.users(t, &server.User{Username: "relay", Password: right})
			want := eventIDs(6, 10)
			if !atStart {
				want = eventIDs(1, 10)
			}
			w.ExpectIDs(want)
			goesOn(t, w, relay)
			stopped(t, relay)
			oneHolder(t, watch)
			if strings.Contains(relay.Log(), right) {
				t.Error("the log shows the password")
			}
		})
	}
}

// C11: what else a user may not do: ask about the stream, or get answers. Each is named and waited for.
func TestC11_NoPermissionForWhatPublishingNeeds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		denied *server.Permissions
		says   string
	}{
		"ask about the stream": {
			&server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.INFO.>"}}}, "STREAM.INFO",
		},
		"read the stream back": {
			&server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.MSG.GET.>"}}}, "STREAM.MSG.GET",
		},
		"get answers": {
			&server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}}}, "_INBOX",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w := startSignIn(t, &server.User{Username: "relay", Password: "pw", Permissions: c.denied})
			watch := w.Watch()
			defer watch.Stop()
			if _, err := w.JS.Publish(t.Context(), w.Subject("x"), nil); err != nil { // so that there is something to read back
				t.Fatal(err)
			}
			insert(w, 1, 3)
			watch.Limit(w.ConfirmedLSN() + 1)
			relay := w.Start(flagsOf(w, "pw")...)
			waitPause(t, relay, c.says, func(p pause) bool {
				return strings.Contains(strings.ToLower(p.reason), "permissions violation") && strings.Contains(p.reason, c.says)
			})
			expectWaits(t, relay, c.says)
			watch.Limit(0)
			s.users(t, &server.User{Username: "relay", Password: "pw"})
			w.ExpectIDs(append([]string{""}, eventIDs(1, 3)...))
			goesOn(t, w, relay)
			stopped(t, relay)
			oneHolder(t, watch)
		})
	}
}
