package test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// startCluster starts three NATS servers that keep streams together.
func startCluster(t *testing.T) *sandbox.NATSCluster {
	t.Helper()
	cluster, err := sandbox.StartNATSCluster(t.Context(), sandbox.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	awaitCluster(t, cluster.URL())
	return cluster
}

// nodeOf returns a cluster's node by its name.
func nodeOf(t *testing.T, c *sandbox.NATSCluster, name string) *sandbox.NATSNode {
	t.Helper()
	for _, n := range c.Nodes() {
		if n.Name() == name {
			return n
		}
	}
	t.Fatalf("no node %q", name)
	return nil
}

// awaitCluster waits until a cluster can make a stream on all its servers.
func awaitCluster(t *testing.T, urls string) {
	t.Helper()
	nc, err := nats.Connect(urls)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	probe := jetstream.StreamConfig{Name: sandbox.Name(t), Replicas: 3}
	sandbox.WaitFor(t, harness.Limit, "the cluster makes a stream", func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.CreateOrUpdateStream(ctx, probe)
		return err == nil, err
	})
	if err := js.DeleteStream(t.Context(), probe.Name); err != nil {
		t.Fatal(err)
	}
}

// streamLeader returns the name of the server that leads the world's stream, "" if none does.
func streamLeader(t *testing.T, w *harness.World) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	s, err := w.JS.Stream(ctx, w.StreamName)
	if err != nil || s.CachedInfo().Cluster == nil {
		return ""
	}
	return s.CachedInfo().Cluster.Leader
}

// stepDown has the leader of the world's stream give that up.
func stepDown(t *testing.T, w *harness.World) {
	t.Helper()
	_, err := w.NC.Request("$JS.API.STREAM.LEADER.STEPDOWN."+w.StreamName, nil, 500*time.Millisecond)
	if err != nil {
		t.Logf("step down: %v", err) // there is no leader at this moment
	}
}

// messagesOneByOne reads the world's stream from its leader. A consumer can take many seconds to come while a server is
// just back, and may be served by one that lags.
func messagesOneByOne(t *testing.T, w *harness.World, last int) []harness.Message {
	t.Helper()
	stream := w.Stream()
	var all []harness.Message
	for seq := uint64(1); len(all) < last; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatalf("message %d: %v", seq, err)
		}
		all = append(all, harness.Message{
			Sequence: m.Sequence, Subject: m.Subject, ID: m.Header.Get("Nats-Msg-Id"), Position: m.Header.Get("Relay-Position"), Body: string(m.Data),
		})
	}
	return all
}

// C33: the leader of a stream on three servers steps down again and again, and the leading server is killed twice. The relay
// goes on, nothing is lost, doubled or reordered. Scaled: some seconds instead of a minute, a step-down every half second.
func TestC33_LeaderChanges(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	w := harness.New(t, harness.Config{NATSURL: cluster.URL(), NATSAddr: cluster.Nodes()[0].Addr(), Stream: func(c *jetstream.StreamConfig) {
		window100ms(c)
		c.Replicas = 3
	}})
	watch := w.Watch()
	defer watch.StopWith(nil) // of a test that fails early
	halt := pace(t, w, 1)
	relay := w.Start("--session-timeout=3s", "--ack-timeout=1s")
	leads(t, relay)
	w.WaitCount(50)
	for range 2 {
		for range 3 {
			moment(t, 400*time.Millisecond, 600*time.Millisecond)
			stepDown(t, w)
		}
		leader := ""
		sandbox.WaitFor(t, harness.Limit, "the stream has a leader", func() (bool, error) {
			leader = streamLeader(t, w)
			return leader != "", nil
		})
		node := nodeOf(t, cluster, leader)
		if err := node.Process().Kill(); err != nil {
			t.Fatal(err)
		}
		moment(t, time.Second, 1500*time.Millisecond)
		if err := node.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	last := halt()
	reachable(t, w)
	w.WaitCount(last)
	w.WaitConfirmed()
	messages := messagesOneByOne(t, w, last)
	expectMessages(t, eventIDs(1, last), messages)
	if n := w.Count(); n != last {
		t.Errorf("%d messages, %d events", n, last)
	}
	if !relay.Running() {
		t.Error("the relay has ended")
	}
	all := pauses(t, relay)
	if len(all) == 0 {
		t.Error("no change of the leader was noticed")
	}
	expectPaced(t, all)
	if strings.Contains(relay.Log(), "level=ERROR") {
		t.Error("the relay reports an error")
	}
	stopped(t, relay)
	watch.StopWith(messages)
	oneHolder(t, watch)
}
