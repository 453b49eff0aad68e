package test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// refuse closes the port of the world's NATS, and cuts the connections to it, or opens it again.
func refuse(t *testing.T, p *sandbox.Proxy, on bool) {
	t.Helper()
	if err := p.Refuse(t.Context(), on); err != nil {
		t.Fatal(err)
	}
	if on {
		p.Cut()
	}
}

// C43: a NATS that accepts and closes at once, or says no more than hello, gets no more connections than there are pauses:
// that a connection came about resets nothing. One line of the log for each.
func TestC43_NATSAcceptsAndCloses(t *testing.T) {
	t.Parallel()
	for name, hello := range map[string]string{
		"at once":     "",
		"after hello": "INFO {\"server_id\":\"x\",\"version\":\"2.15.3\",\"headers\":true,\"max_payload\":1048576}\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.New(t, harness.Config{Stream: window100ms})
			watch := w.Watch()
			defer watch.Stop()
			relay := w.Start("--session-timeout=2s")
			insert(w, 1, 1)
			w.WaitConfirmed()
			var connections atomic.Int32
			w.NATSProxy.SetTarget(closesAtOnce(t, hello, &connections))
			w.NATSProxy.Cut()
			insert(w, 2, 3)
			watch.Limit(walLSN(w))
			waitPause(t, relay, "some tries", attempt(6, ""))
			all := pauses(t, relay)
			if n := int(connections.Load()); n < len(all)-1 || n > len(all)+1 {
				t.Errorf("%d connections, %d lines about a failed try", n, len(all))
			}
			expectPaced(t, all)
			watch.Limit(0)
			w.NATSProxy.SetTarget(sandbox.JetStream(t).Addr())
			w.ExpectIDs(eventIDs(1, 3))
			goesOn(t, w, relay)
			stopped(t, relay)
			oneHolder(t, watch)
		})
	}
}

// closesAtOnce starts a server that says hello to each connection, counts and closes it.
func closesAtOnce(t *testing.T, hello string, connections *atomic.Int32) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepts sync.WaitGroup
	accepts.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			_, _ = io.WriteString(conn, hello) // the client may be gone
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepts.Wait()
	})
	return l.Addr().String()
}

// C08: a broker that stands still for longer than the session's timeout costs the session nothing: the relay goes on
// answering PostgreSQL, whether the events fit into the connection's buffers or not.
func TestC08_FrozenBrokerFullBuffers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ events, bytes int }{"few": {10, 10}, "more than the buffers hold": {1500, 10_000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, err := sandbox.StartNATSProcess(t.Context(), sandbox.NATSConfig{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			w := harness.New(t, harness.Config{NATSURL: server.URL(), NATSAddr: server.Addr(), Stream: window100ms})
			watch := w.Watch()
			defer watch.Stop()
			relay := w.Start("--session-timeout=3s", "--ack-timeout=1s")
			insertAtOnce(w, 1, 5000) // so that as many may be in flight at once
			w.WaitCount(5000)
			w.WaitConfirmed()
			if err := server.Process().Freeze(t.Context()); err != nil {
				t.Fatal(err)
			}
			frozen := time.Now()
			w.Exec(`INSERT INTO outbox (id, topic, payload) SELECT `+idSQL+`, 'order.created', to_jsonb(repeat('x', $3::int))
				FROM generate_series($1::int, $2::int) i`, 5001, 5000+c.events, c.bytes)
			watch.Limit(walLSN(w))
			sandbox.WaitFor(t, harness.Limit, "more than twice the session timeout", func() (bool, error) {
				return time.Since(frozen) > 7*time.Second, nil
			})
			expectWaits(t, relay, "")
			watch.Limit(0)
			if err := server.Process().Thaw(); err != nil {
				t.Fatal(err)
			}
			thawed := time.Now()
			w.ExpectIDs(eventIDs(1, 5000+c.events))
			if took := time.Since(thawed); took > 15*time.Second {
				t.Errorf("stored %s after the broker went on", took)
			}
			goesOn(t, w, relay)
			stopped(t, relay)
			oneHolder(t, watch)
			for _, pid := range watch.Holders() {
				for _, line := range serverLog(t, fmt.Sprintf("[%d]", pid)) {
					if strings.Contains(line, "terminating walsender") {
						t.Error(line)
					}
				}
			}
		})
	}
}

// A leader that alone cannot reach the broker leaves the slot to a relay with a better network, and stands by then.
func TestC07_LeaderWithoutBrokerYields(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	other := harness.Proxy(t, sandbox.JetStream(t).Addr())
	a := w.Start("--session-timeout=2s", "--yield-after=2s")
	leads(t, a)
	insert(w, 1, 5)
	w.WaitCount(5)
	w.WaitConfirmed()
	b := w.Start("--session-timeout=2s", "--yield-after=2s", "--nats-url=nats://"+other.Addr())
	b.WaitLog("standing by")
	refuse(t, w.NATSProxy, true)
	insert(w, 6, 10)
	cut := time.Now()
	leads(t, b)
	w.ExpectIDs(eventIDs(1, 10))
	if took := time.Since(cut); took > 10*time.Second {
		t.Errorf("the standby delivered after %s", took)
	}
	w.WaitConfirmed()
	a.WaitLog("standing by")
	if n := strings.Count(a.Log(), `msg="session ended, another one follows" reason="no broker`); n != 1 {
		t.Errorf("the leader says %d times that it yields", n)
	}
	refuse(t, w.NATSProxy, false)
	stopped(t, b)
	insert(w, 11, 15)
	w.ExpectIDs(eventIDs(1, 15)) // by the first one
	w.WaitConfirmed()
	stopped(t, a)
	if pids := watch.Holders(); len(pids) != 3 {
		t.Errorf("the slot was held by %v, want three walsenders: the first relay's, the second's, the first's", pids)
	}
}

// A relay that yields and is alone takes the slot again, and again when there is still no broker.
func TestC07_YieldsToNobody(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	refuse(t, w.NATSProxy, true)
	insert(w, 1, 5)
	relay := w.Start("--session-timeout=2s", "--yield-after=1s")
	sandbox.WaitFor(t, harness.Limit, "it leads again", func() (bool, error) {
		return strings.Count(relay.Log(), "msg=leading") == 2, nil
	})
	refuse(t, w.NATSProxy, false)
	w.ExpectIDs(eventIDs(1, 5))
	w.WaitConfirmed()
	stopped(t, relay)
	if pids := watch.Holders(); len(pids) != 2 {
		t.Errorf("the slot was held by %v, want two walsenders of the one relay", pids)
	}
}
