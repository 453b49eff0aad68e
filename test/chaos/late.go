package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// lateFaults are bytes of a leader that arrive when another one leads. They must find their place taken (I7).
func lateFaults() []fault {
	return []fault{
		{name: "publishes arrive when the leader was replaced", do: func(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
			return w.withLeader(ctx, func(m *member) error { return w.arriveLate(ctx, rng, m) })
		}},
		{name: "publishes arrive while the next leader resumes", do: func(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
			return w.withLeader(ctx, func(m *member) error { return w.arriveInBetween(ctx, rng, m) })
		}},
	}
}

// arriveLate holds what the leader publishes, freezes it, and lets the bytes go when the next one has stored events.
func (w *world) arriveLate(ctx context.Context, rng *rand.Rand, m *member) error {
	next := w.other(m)
	held := holdNATS(m, isPublish)
	defer m.cut()
	w.awaitStep(ctx, held)
	if err := m.proc().Freeze(ctx); err != nil {
		return err
	}
	defer m.proc().Thaw() //nolint:errcheck // it runs
	stored := seenNATS(next, isAck)
	defer next.natsProxy.OnNATS(nil)
	_, err := w.waitLeader(ctx, leadLimit, func(now *member) bool { return now == next })
	if err != nil {
		return err
	}
	w.awaitStep(ctx, stored)
	sleep(ctx, between(rng, 2*duplicateWindow, 6*duplicateWindow)) // JetStream has forgotten the ids
	m.natsProxy.Release()
	sleep(ctx, between(rng, 100*time.Millisecond, 500*time.Millisecond)) // they arrive
	return nil
}

// arriveInBetween lets the bytes go when the next leader has asked where the stream ends, before it reads the stream back.
func (w *world) arriveInBetween(ctx context.Context, rng *rand.Rand, m *member) error {
	next := w.other(m)
	held := holdNATS(m, isPublish)
	defer m.cut()
	w.awaitStep(ctx, held)
	asks := holdNATS(next, isTail)
	defer next.natsProxy.Release()
	defer next.natsProxy.OnNATS(nil)
	if err := m.proc().Kill(); err != nil { // its bytes are in the proxy still
		return err
	}
	m.onPg(nil)
	m.pgProxy.Cut()
	w.awaitStep(ctx, asks)
	m.natsProxy.OnNATS(nil)
	m.natsProxy.Release()
	sleep(ctx, between(rng, 100*time.Millisecond, 500*time.Millisecond))
	next.natsProxy.Release()
	return m.start(ctx)
}

// awaitStep waits for a step, and says so if it does not come.
func (w *world) awaitStep(ctx context.Context, reached <-chan struct{}) {
	limit := time.NewTimer(stepLimit)
	defer limit.Stop()
	select {
	case <-reached:
	case <-limit.C:
		w.out.say("  (not reached)")
	case <-ctx.Done():
	}
}

// seenNATS tells when such a message passes.
func seenNATS(m *member, is func(sandbox.NATSMessage) bool) <-chan struct{} {
	hook, seen := sandbox.HoldFirst(is)
	m.natsProxy.OnNATS(func(msg sandbox.NATSMessage) sandbox.Action {
		hook(msg)
		return sandbox.Forward
	})
	return seen
}
