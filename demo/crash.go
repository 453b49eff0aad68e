package main

import (
	"context"
	"fmt"
	"time"
)

// step is a moment in the life of a relay at which it can be killed. It is reached from outside: the relay has no hooks.
type step struct {
	name  string // for a flag
	title string // for a person

	// arm makes sure that the relay stops at the step, from now on. The func it returns waits until the relay is there.
	arm func(ctx context.Context, w *world) (reached func(ctx context.Context) error, err error)
}

// steps are the moments that the demo knows. The first one is the default.
func steps() []step {
	return []step{
		{name: "confirm", title: "between JetStream's ack and the confirmation to PostgreSQL", arm: holdConfirmation},
	}
}

const reachLimit = 30 * time.Second

// holdConfirmation keeps the status updates that would confirm anything that commits from now on. The relay goes on without
// knowing: to it, PostgreSQL is only slow to read.
func holdConfirmation(ctx context.Context, w *world) (func(context.Context) error, error) {
	now, err := w.lsn(ctx, "SELECT pg_current_wal_insert_lsn()")
	if err != nil {
		return nil, err
	}
	held := w.proxy.HoldConfirmAbove(now)
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, reachLimit, fmt.Errorf("not within %v", reachLimit))
		defer cancel()
		select {
		case <-held:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait until the relay confirms what it has stored: %w", context.Cause(ctx))
		}
	}, nil
}
