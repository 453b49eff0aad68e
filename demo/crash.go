package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// step is a moment in the life of a relay at which it can be killed. It is reached from outside: the relay has no hooks.
type step struct {
	name  string // for --crash
	title string // "the relay was killed, ..."
	left  string // what is left then, and who picks it up

	// arm makes sure that the relay stops at the step, from now on. The func it returns waits until the relay is there.
	arm func(ctx context.Context, w *world) (reached, error)

	goesOn bool // the relay stores on meanwhile: there is more to see later
	term   bool // the relay is asked to stop first
	again  bool // it is the next relay that is killed here, after one that was killed at the first step
}

// reached waits until the relay has come to the step.
type reached func(ctx context.Context) error

const defaultStep = "acked"

// steps are the moments that the demo knows, along the path of an event.
func steps() []step {
	const inPostgres = "What is not stored is in the WAL that the slot holds: PostgreSQL will send it to the next relay."
	return []step{
		{
			name: "received", title: "after it had read events, before JetStream had any of them", arm: holdPublish,
			left: inPostgres,
		},
		{
			name: "transaction", title: "in the middle of a transaction: it had read and stored the first event, not the next", arm: holdInsert,
			left: "The LSN that is confirmed lies before the transaction: PostgreSQL will send all of it once more.",
		},
		{
			name: "published", title: "between the publish and JetStream's ack", arm: holdAck,
			left: "JetStream has them, and nobody else knows. PostgreSQL will send them once more.",
		},
		{
			name: defaultStep, title: "between JetStream's ack and the confirmation to PostgreSQL", arm: holdConfirmation, goesOn: true,
			left: "JetStream has them. PostgreSQL does not know it: it will send them to the next relay once more.",
		},
		{
			name: "confirmed", title: "just when its confirmation had left", arm: watchConfirmation,
			left: "What PostgreSQL has been told of it will not send again. " + inPostgres,
		},
		{
			name: "resuming", title: "while it read the end of the stream, to know what is there", arm: holdTail, again: true,
			left: "It had stored nothing yet: everything is as the relay before it left it.",
		},
		{
			name: "draining", title: "after SIGTERM, while it waited for the last acks", arm: holdAck, term: true,
			left: "It had not confirmed them: what JetStream has, the next relay finds there.",
		},
	}
}

// stepNamed finds a step.
func stepNamed(name string) (step, error) {
	for _, s := range steps() {
		if s.name == name {
			return s, nil
		}
	}
	return step{}, &usageError{text: fmt.Sprintf("--crash %q: want one of %s", name, stepNames())}
}

func stepNames() string {
	var names []string
	for _, s := range steps() {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}

const reachLimit = 30 * time.Second

// await returns a func that waits for the channel to close.
func await(what string, done <-chan struct{}) reached {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, reachLimit, fmt.Errorf("not within %v", reachLimit))
		defer cancel()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
}

// holdConfirmation keeps the status updates that would confirm anything that commits from now on. The relay goes on without
// knowing: to it, PostgreSQL is only slow to read.
func holdConfirmation(ctx context.Context, w *world) (reached, error) {
	now, err := w.lsn(ctx, "SELECT pg_current_wal_insert_lsn()")
	if err != nil {
		return nil, err
	}
	return await("the relay confirms what it has stored", w.proxy.HoldConfirmAbove(now)), nil
}

// watchConfirmation lets such a status update pass, and tells.
func watchConfirmation(ctx context.Context, w *world) (reached, error) {
	now, err := w.lsn(ctx, "SELECT pg_current_wal_insert_lsn()")
	if err != nil {
		return nil, err
	}
	passed := make(chan struct{})
	fired := false
	w.proxy.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		if !fired && m.IsStatusUpdate() && m.Flush > now {
			fired = true
			close(passed)
		}
		return sandbox.Forward
	})
	return await("the relay confirms what it has stored", passed), nil
}

// holdPublish keeps the next event on its way to JetStream.
func holdPublish(_ context.Context, w *world) (reached, error) {
	hook, held := sandbox.HoldFirst(func(m sandbox.NATSMessage) bool {
		return m.ToServer && m.Op == "HPUB" && strings.HasPrefix(m.Subject, subjectPrefix)
	})
	w.natsProxy.OnNATS(hook)
	return await("the relay publishes", held), nil
}

// holdAck keeps JetStream's next answer to a publish.
func holdAck(_ context.Context, w *world) (reached, error) {
	hook, held := sandbox.HoldFirst(func(m sandbox.NATSMessage) bool {
		return !m.ToServer && strings.HasPrefix(string(m.Body), `{"stream":"`+streamName+`"`)
	})
	w.natsProxy.OnNATS(hook)
	return await("JetStream acks", held), nil
}

// holdTail keeps the relay's first request for what is in the stream.
func holdTail(_ context.Context, w *world) (reached, error) {
	hook, held := sandbox.HoldFirst(func(m sandbox.NATSMessage) bool {
		return m.ToServer && strings.HasPrefix(m.Subject, "$JS.API.STREAM.MSG.GET.")
	})
	w.natsProxy.OnNATS(hook)
	return await("the relay reads the stream back", held), nil
}

// holdInsert keeps the second event of a transaction, and is reached when the first one is in the stream.
func holdInsert(ctx context.Context, w *world) (reached, error) {
	var first atomic.Int64 // events that the relay has read
	inTransaction := 0
	hook, held := sandbox.HoldFirst(func(m sandbox.PgMessage) bool {
		switch m.Pgoutput {
		case 'B':
			inTransaction = 0
		case 'I':
			inTransaction++
			if inTransaction < 2 {
				first.Add(1)
			}
		}
		return m.Pgoutput == 'I' && inTransaction == 2
	})
	stored, err := w.stored(ctx)
	if err != nil {
		return nil, err
	}
	w.proxy.OnPg(hook)
	second := await("the relay reads a transaction of several events", held)
	return func(ctx context.Context) error {
		if err := second(ctx); err != nil {
			return err
		}
		return waitFor(ctx, reachLimit, "the first event is stored", func() (bool, error) {
			n, err := w.stored(ctx)
			return n >= stored+int(first.Load()), err
		})
	}, nil
}
