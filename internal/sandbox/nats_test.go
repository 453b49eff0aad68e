package sandbox_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

func jetStreamOf(t *testing.T, url string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(url, nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

func createStream(t *testing.T, js jetstream.JetStream) string {
	t.Helper()
	name := sandbox.Name(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}); err != nil {
		t.Fatal(err)
	}
	return name
}

func publish(t *testing.T, js jetstream.JetStream, stream string) {
	t.Helper()
	if _, err := js.Publish(t.Context(), stream+".x", []byte("hello")); err != nil {
		t.Fatal(err)
	}
}

func lastSequence(t *testing.T, url, stream string) uint64 {
	t.Helper()
	_, js := jetStreamOf(t, url)
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}

func TestNATSKeepsDataAcrossRestarts(t *testing.T) {
	t.Parallel()
	n, err := sandbox.StartNATS(t.Context(), sandbox.NATSConfig{
		Username: "u", Password: "p", MaxPayload: 4096, SyncAlways: true, Logger: sandbox.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	nc, js := jetStreamOf(t, n.URL())
	if nc.MaxPayload() != 4096 {
		t.Errorf("largest payload %d", nc.MaxPayload())
	}
	stream := createStream(t, js)
	publish(t, js, stream)
	url := n.URL()
	n.Stop()
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.URL() != url || lastSequence(t, url, stream) != 1 {
		t.Errorf("after a restart: %s, was %s; last sequence %d", n.URL(), url, lastSequence(t, url, stream))
	}
	if err := errors.Join(n.Close(), n.Close()); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err == nil {
		t.Error("a closed server started")
	}
}

func TestNATSPortTaken(t *testing.T) {
	t.Parallel()
	port := sandbox.JetStream(t).Server().Addr().String()
	cfg := sandbox.NATSConfig{Port: mustPort(t, port)}
	if n, err := sandbox.StartNATS(t.Context(), cfg); err == nil {
		n.Close()
		t.Error("two servers on one port")
	}
	if n, err := sandbox.StartNATSProcess(t.Context(), cfg); err == nil {
		n.Close()
		t.Error("two servers on one port")
	}
}

func TestNATSProcess(t *testing.T) {
	t.Parallel()
	n, err := sandbox.StartNATSProcess(t.Context(), sandbox.NATSConfig{SyncAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	_, js := jetStreamOf(t, n.URL())
	stream := createStream(t, js)
	publish(t, js, stream)

	// Frozen, it does not answer; thawed, it does.
	if err := n.Process().Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := js.AccountInfo(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server answered: %v", err)
	}
	if err := n.Process().Thaw(); err != nil {
		t.Fatal(err)
	}
	publish(t, js, stream)

	if runtime.GOOS == "linux" {
		u, err := n.Process().Usage()
		if err != nil || u.RSSBytes == 0 || u.PeakRSSBytes < u.RSSBytes || u.CPU == 0 {
			t.Errorf("usage %+v, %v", u, err)
		}
	}

	pid := n.PID()
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	if code, err := n.Process().Wait(t.Context()); code != 137 || err != nil {
		t.Errorf("killed: exit code %d, %v", code, err)
	}
	if u, err := n.Process().Usage(); err != nil || u.CPU == 0 || u.PeakRSSBytes == 0 {
		t.Errorf("usage after the end %+v, %v", u, err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last := lastSequence(t, n.URL(), stream); last != 2 || n.PID() == pid {
		t.Errorf("after a kill: last sequence %d, pid %d, was %d", last, n.PID(), pid)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, err := n.Process().Wait(t.Context()); code != 0 || err != nil {
		t.Errorf("stopped: exit code %d, %v", code, err)
	}
}
