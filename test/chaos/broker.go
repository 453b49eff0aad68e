package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// node is a NATS server in a process of its own.
type node interface {
	Addr() string
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Process() *sandbox.Process
}

// broker is one NATS server, or three that hold the stream together.
type broker struct {
	nodes []node
	names []string // as the servers say them; "" for a single one
	url   string
	close func() error
}

func startBroker(ctx context.Context, cluster bool) (*broker, error) {
	if !cluster {
		n, err := sandbox.StartNATSProcess(ctx, sandbox.NATSConfig{})
		if err != nil {
			return nil, err
		}
		return &broker{nodes: []node{n}, names: []string{""}, url: n.URL(), close: n.Close}, nil
	}
	c, err := sandbox.StartNATSCluster(ctx, sandbox.NATSConfig{})
	if err != nil {
		return nil, err
	}
	b := &broker{url: c.URL(), close: c.Close}
	for _, n := range c.Nodes() {
		b.nodes, b.names = append(b.nodes, n), append(b.names, n.Name())
	}
	return b, nil
}

// victim chooses a node: each time in two the one that leads the stream.
func (w *world) victim(ctx context.Context, rng *rand.Rand) node {
	i, leader := rng.IntN(len(w.broker.nodes)), rng.IntN(2) == 0
	if len(w.broker.nodes) == 1 {
		return w.broker.nodes[0]
	}
	text := ""
	if leader {
		_ = w.withStream(ctx, func(_ context.Context, _ jetstream.JetStream, stream jetstream.Stream) error {
			for j, name := range w.broker.names {
				if c := stream.CachedInfo().Cluster; c != nil && name == c.Leader {
					i, text = j, ", which leads the stream"
				}
			}
			return nil
		})
	}
	w.out.say("  %s%s", w.broker.names[i], text)
	return w.broker.nodes[i]
}

// brokerFaults are those of a NATS server alone. With a cluster there are two others.
func brokerFaults() []fault {
	away := func(how func(context.Context, node) error) func(context.Context, *world, *load, *rand.Rand) error {
		return func(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
			n := w.victim(ctx, rng)
			if err := how(ctx, n); err != nil {
				return err
			}
			sleep(ctx, between(rng, 0, 3*time.Second))
			return n.Start(ctx)
		}
	}
	return []fault{
		{name: "nats killed", do: away(func(_ context.Context, n node) error { return n.Process().Kill() })},
		{name: "nats stopped", do: away(func(ctx context.Context, n node) error { return n.Stop(ctx) })},
		{name: "nats frozen", do: func(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
			p := w.victim(ctx, rng).Process()
			if err := p.Freeze(ctx); err != nil {
				return err
			}
			sleep(ctx, between(rng, time.Second, 6*time.Second))
			return p.Thaw()
		}},
		{name: "stream leader steps down", cluster: true, do: func(ctx context.Context, w *world, _ *load, _ *rand.Rand) error {
			if err := w.stepDown(ctx); err != nil { // it has no leader, perhaps
				w.out.say("  (%v)", err)
			}
			return nil
		}},
	}
}

// stepDown asks the stream's leader to let another node lead.
func (w *world) stepDown(ctx context.Context) error {
	return w.withNATS(ctx, func(ctx context.Context, nc *nats.Conn) error {
		m, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+streamName, nil)
		if err != nil {
			return err
		}
		var answer struct {
			Success bool `json:"success"`
		}
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			return err
		}
		if !answer.Success {
			return errors.New("refused: " + string(m.Data))
		}
		return nil
	})
}

// link is a relay's way to a server: a proxy for each node. What is done to it is done to all.
type link []*sandbox.Proxy

func (l link) OnNATS(hook func(sandbox.NATSMessage) sandbox.Action) {
	for _, p := range l {
		p.OnNATS(hook)
	}
}

func (l link) Cut() {
	for _, p := range l {
		p.Cut()
	}
}

func (l link) Freeze() {
	for _, p := range l {
		p.Freeze()
	}
}

func (l link) Thaw() {
	for _, p := range l {
		p.Thaw()
	}
}

func (l link) Release() {
	for _, p := range l {
		p.Release()
	}
}

func (l link) Delay(d time.Duration) {
	for _, p := range l {
		p.Delay(d)
	}
}

func (l link) Refuse(ctx context.Context, on bool) error {
	var errs []error
	for _, p := range l {
		errs = append(errs, p.Refuse(ctx, on))
	}
	return errors.Join(errs...)
}

const askLimit = 3 * time.Second // one question to NATS: the one that knows the answer may just have died

// withNATS runs f with a connection of its own.
func (w *world) withNATS(ctx context.Context, f func(context.Context, *nats.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	nc, err := nats.Connect(w.broker.url, nats.Timeout(time.Second), nats.IgnoreDiscoveredServers())
	if err != nil {
		return err
	}
	defer nc.Close()
	return f(ctx, nc)
}

// withStream runs f with the stream, once.
func (w *world) withStream(ctx context.Context, f func(context.Context, jetstream.JetStream, jetstream.Stream) error) error {
	return w.withNATS(ctx, func(ctx context.Context, nc *nats.Conn) error {
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		stream, err := js.Stream(ctx, streamName)
		if err != nil {
			return err
		}
		return f(ctx, js, stream)
	})
}

// persist tries until it works: a cluster may be without a leader.
func persist(ctx context.Context, what string, try func() error) error {
	var last error
	err := waitFor(ctx, leadLimit, what, func() (bool, error) { last = try(); return last == nil, nil })
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}
