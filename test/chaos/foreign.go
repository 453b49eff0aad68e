package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// foreigner publishes into the stream now and then, as nobody but the relays should.
func (w *world) foreigner(ctx context.Context, seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	rng := rand.New(rand.NewPCG(seed, 99)) //nolint:gosec // repeatable on purpose
	all.Go(func() {
		for sleep(ctx, between(rng, 50*time.Millisecond, time.Second)) {
			_ = w.publishForeign(ctx) // NATS may be away
		}
	})
	return func() { cancel(); all.Wait() }
}

// publishForeign stores one message of no relay.
func (w *world) publishForeign(ctx context.Context) error {
	return w.withNATS(ctx, func(ctx context.Context, nc *nats.Conn) error {
		m := nats.NewMsg("outbox.foreign")
		m.Header.Set(foreignHeader, "yes")
		m.Header.Set(jetstream.MsgIDHeader, uuid.NewString())
		_, err := nc.RequestMsgWithContext(ctx, m)
		return err
	})
}

// foreignFaults need a foreign writer.
func foreignFaults() []fault {
	return []fault{{name: "leader overtaken by a foreign message, then killed", foreign: true, do: func(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
		return w.withLeader(ctx, func(m *member) error { return w.overtake(ctx, rng, m) })
	}}}
}

// overtake takes the place of the leader's next event with a foreign message while others are on the way behind it: the
// first is refused and the second fits. The leader is killed before it hears of it.
func (w *world) overtake(ctx context.Context, rng *rand.Rand, m *member) error {
	const settled = 10 // an epoch that has just begun has one message on the way
	var published atomic.Int64
	var free atomic.Bool // later ones may pass
	m.natsProxy.OnNATS(func(msg sandbox.NATSMessage) sandbox.Action {
		switch {
		case isPublish(msg) && published.Add(1) == settled:
			return sandbox.Hold
		case free.Load() && strings.HasSuffix(msg.Op, "MSG"): // no answer of any kind
			return sandbox.Drop
		}
		return sandbox.Forward
	})
	held := func() (bool, error) { return published.Load() > settled, nil }
	if err := waitFor(ctx, stepLimit, "two events are on the way", held); err != nil {
		w.out.say("  (not reached)")
	}
	for w.publishForeign(ctx) != nil && sleep(ctx, pollEvery) {
	}
	free.Store(true)
	m.natsProxy.Release()
	sleep(ctx, between(rng, 50*time.Millisecond, 300*time.Millisecond))
	if err := m.proc().Kill(); err != nil {
		return err
	}
	m.cut()
	return w.resumeBeforeRows(ctx, rng, m)
}

// resumeBeforeRows starts a relay that was killed, and holds the first transaction that PostgreSQL sends to whoever leads
// next, until that one knows what is in the stream: rows and ids are compared as the rows come.
func (w *world) resumeBeforeRows(ctx context.Context, rng *rand.Rand, killed *member) error {
	var held [2]<-chan struct{}
	for i, m := range w.relays {
		held[i] = holdPg(m, func(msg sandbox.PgMessage) bool { return msg.Pgoutput == 'B' })
	}
	defer func() {
		for _, m := range w.relays {
			m.onPg(nil)
			m.pgProxy.Release()
		}
	}()
	if err := killed.start(ctx); err != nil {
		return err
	}
	limit := time.NewTimer(stepLimit)
	defer limit.Stop()
	select {
	case <-held[0]:
	case <-held[1]:
	case <-limit.C:
		w.out.say("  (no rows came)")
	}
	sleep(ctx, between(rng, 300*time.Millisecond, 600*time.Millisecond))
	return nil
}
