package main

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// purge is a scenario of its own: what is stored and not confirmed is purged, and the leader dies. The next one cannot know
// that it was stored: it comes twice, nothing is lost, and the relay says what it could not see.
func (w *world) purge(ctx context.Context, c *streamCopy) error {
	if !sleep(ctx, 2*time.Second) {
		return context.Cause(ctx)
	}
	m, err := w.waitLeader(ctx, leadLimit, anyRelay)
	if err != nil {
		return err
	}
	w.awaitStep(ctx, holdPg(m, confirms()))
	sleep(ctx, 500*time.Millisecond)
	if err := m.proc().Freeze(ctx); err != nil {
		return err
	}
	sleep(ctx, 100*time.Millisecond) // what it had sent is stored
	if err := c.complete(ctx); err != nil {
		return err
	}
	last := c.last()
	w.out.say("the leader is frozen with unconfirmed events: the stream is purged up to %d, the leader is killed", last)
	err = persist(ctx, "the stream is purged", func() error {
		return w.withStream(ctx, func(ctx context.Context, _ jetstream.JetStream, stream jetstream.Stream) error {
			return stream.Purge(ctx, jetstream.WithPurgeSequence(last+1))
		})
	})
	if err != nil {
		return err
	}
	if err := m.proc().Kill(); err != nil {
		return err
	}
	m.cut()
	if _, err := w.waitLeader(ctx, leadLimit, func(now *member) bool { return now != m }); err != nil {
		return err
	}
	sleep(ctx, 2*time.Second)
	return m.start(ctx)
}
