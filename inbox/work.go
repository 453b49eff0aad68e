package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go/jetstream"
)

// worker handles batches until there are no more. Its transactions live under ctx.
func (r *runner) worker(ctx context.Context) {
	for {
		batch := r.lanes.take(r.Batch)
		if batch == nil {
			return
		}
		if len(batch) > 1 {
			err := r.together(ctx, batch)
			if err == nil {
				r.ack(ctx, batch)
				r.lanes.done(batch...)
				continue
			}
			r.Log.Debug("a batch is handled event by event", "consumer", r.Name, "events", len(batch), "reason", err)
		}
		r.singly(ctx, batch)
	}
}

// singly handles each event of a batch in a transaction of its own. Those behind one that is not done go back with it.
func (r *runner) singly(ctx context.Context, batch []*delivery) {
	waits := map[string]bool{}
	for _, d := range batch {
		if waits[d.key()] {
			continue
		}
		if pause, again := r.one(ctx, d); again {
			waits[d.key()] = true
			r.lanes.retry(d, pause)
			continue
		}
		r.lanes.done(d)
	}
}

// one handles an event. again means that it is not done: it stays, and comes again after the pause.
func (r *runner) one(ctx context.Context, d *delivery) (pause time.Duration, again bool) {
	err := r.process(ctx, d)
	var gap *GapError
	var away *awayError
	attrs := []any{"consumer", r.Name, "event_id", d.ID, "subject", d.Subject, "stream_sequence", d.StreamSequence, "reason", err}
	switch {
	case err == nil:
		r.ack(ctx, []*delivery{d})
		return 0, false
	case ctx.Err() != nil:
		return 0, true
	case errors.As(err, &away):
		r.outage(ctx, away)
		return d.pauses.NextBackOff(), true // it may be the event that loses the connection
	case errors.As(err, &gap) && gap.Missing() && r.OnGap == GapWait:
		if d.missing.IsZero() {
			d.missing = time.Now()
			r.Log.Warn("an event waits for one before it", append(attrs, "patience", r.GapPatience)...)
		}
		if time.Since(d.missing) < r.GapPatience {
			return d.pauses.NextBackOff(), true
		}
	case errors.As(err, &gap), d.ID == "": // trying again changes nothing
	default:
		if d.attempts++; d.attempts < r.Attempts {
			pause = d.pauses.NextBackOff()
			r.Log.Warn("an event failed, trying again", append(attrs, "attempt", d.attempts, "pause", pause)...)
			return pause, true
		}
	}
	if buried := r.bury(ctx, d, err); buried != nil {
		pause = d.pauses.NextBackOff()
		r.Log.Warn("an event failed for good, and cannot be noted", append(attrs, "err", buried, "pause", pause)...)
		return pause, true
	}
	r.Log.Error("an event failed for good: it is in "+DeadTable, append(attrs, "attempts", d.attempts)...)
	return 0, false
}

// awayError is what went wrong with the database rather than with the event.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// transaction runs do in a transaction, and commits. An *awayError means that the connection is lost; whether what was
// committed on it counts, the next attempt finds out.
func (r *runner) transaction(ctx context.Context, do func(pgx.Tx) error) error {
	tx, err := r.DB.Begin(ctx)
	if err != nil {
		return &awayError{err}
	}
	if err = do(tx); err != nil {
		lost := tx.Conn().IsClosed()
		_ = tx.Rollback(context.WithoutCancel(ctx)) // of no account: nothing was committed
		if lost {
			err = &awayError{err}
		}
		return err
	}
	err = tx.Commit(ctx) // gives the connection back, so it cannot be asked
	if refused, ok := errors.AsType[*pgconn.PgError](err); err == nil || ok && !strings.HasPrefix(refused.Code, "57P") || errors.Is(err, pgx.ErrTxCommitRollback) {
		return err
	}
	return &awayError{err}
}

// outage waits until the database takes transactions again, for all workers that need one.
func (r *runner) outage(ctx context.Context, reason error) {
	r.away.Lock()
	defer r.away.Unlock()
	pauses := r.newPauses()
	for {
		err := r.transaction(ctx, func(pgx.Tx) error { return nil })
		if err == nil {
			return
		}
		pause := pauses.NextBackOff()
		r.Log.Warn("the database is away, trying again", "consumer", r.Name, "reason", reason, "pause", pause)
		reason = err
		if !wait(r.ending, pause) {
			return
		}
	}
}

// process gives one event its effect, unless it has had it.
func (r *runner) process(ctx context.Context, d *delivery) error {
	if d.ID == "" {
		return errNoID
	}
	return r.transaction(ctx, func(tx pgx.Tx) error {
		_, err := Once(ctx, tx, r.Name, d.ID, func(ctx context.Context, tx pgx.Tx) error {
			if err := r.number(ctx, tx, d); err != nil {
				return err
			}
			return r.handle(ctx, tx, d)
		})
		return err
	})
}

var errNoID = errors.New("the message has no Nats-Msg-Id: a second delivery could not be told from the first")

// handle calls the application, and makes an error of its panic.
func (r *runner) handle(ctx context.Context, tx pgx.Tx, d *delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panics: %v\n%s", p, debug.Stack())
		}
	}()
	return r.Handle(ctx, tx, d.Message)
}

const claimAll = `INSERT INTO ` + Table + ` (consumer, event_id) SELECT $1, id FROM unnest($2::text[]) AS id ORDER BY id ON CONFLICT DO NOTHING RETURNING event_id`

// together gives the events of a batch their effects in one transaction. Any error means that none has had it.
func (r *runner) together(ctx context.Context, batch []*delivery) error {
	ids := make([]string, len(batch))
	for i, d := range batch {
		if ids[i] = d.ID; d.ID == "" {
			return errNoID
		}
	}
	return r.transaction(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, claimAll, r.Name, ids)
		if err != nil {
			return err
		}
		claimed, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		first := make(map[string]bool, len(claimed))
		for _, id := range claimed {
			first[id] = true
		}
		for _, d := range batch {
			if !first[d.ID] {
				continue
			}
			delete(first, d.ID)
			if err := r.number(ctx, tx, d); err != nil {
				return err
			}
			if err := r.handle(ctx, tx, d); err != nil {
				return err
			}
		}
		return nil
	})
}

const ackTimeout = 5 * time.Second

// ack tells JetStream that the events are done. It processes the acks of a connection in their order, so the confirmation of
// the last one stands for all. One that does not get through costs a delivery that takes no effect.
func (r *runner) ack(ctx context.Context, batch []*delivery) {
	last := batch[len(batch)-1]
	for _, d := range batch[:len(batch)-1] {
		_ = d.msg.Ack() // as the last one
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if err := last.msg.DoubleAck(ctx); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		r.Log.Warn("an ack was not confirmed: the event may be delivered again, and takes no effect then", "consumer", r.Name,
			"event_id", last.ID, "stream_sequence", last.StreamSequence, "reason", err)
	}
}
