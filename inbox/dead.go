package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
)

// ErrNotDead is the error of a retry of an event that is not among the dead.
var ErrNotDead = errors.New("no such event is dead")

// DeadEvent is an event that a consumer has given up.
type DeadEvent struct {
	Message         // its ID is the name it has in the table, as Retry takes it
	Reason   string // the last error
	Attempts int
	FailedAt time.Time
}

const (
	deadInsert = `INSERT INTO ` + DeadTable + ` (consumer, event_id, stream, stream_sequence, subject, headers, payload, reason, attempts)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (consumer, event_id) DO UPDATE SET reason = excluded.reason, attempts = excluded.attempts, failed_at = now()`
	deadColumns = `event_id, stream, stream_sequence, subject, headers, payload, reason, attempts, failed_at FROM ` + DeadTable
	deadList    = `SELECT ` + deadColumns + ` WHERE consumer = $1 ORDER BY failed_at LIMIT $2`
	deadGet     = `SELECT ` + deadColumns + ` WHERE consumer = $1 AND event_id = $2 FOR UPDATE`
	deadDelete  = `DELETE FROM ` + DeadTable + ` WHERE consumer = $1 AND event_id = $2`
)

// bury moves an event to the dead. It counts as processed, so that a delivery whose termination is lost does nothing, and as
// the last of its aggregate, so that what follows it goes on.
func (r *runner) bury(ctx context.Context, d *delivery, reason error) error {
	err := r.transaction(ctx, func(tx pgx.Tx) error {
		header := map[string][]string(d.Header)
		if header == nil {
			header = map[string][]string{}
		}
		data := d.Data
		if data == nil {
			data = []byte{}
		}
		_, err := tx.Exec(ctx, deadInsert, r.Name, d.deadID(), d.Stream, int64(d.StreamSequence), d.Subject, header, data, reason.Error(), d.attempts)
		if err != nil {
			return err
		}
		if d.ID != "" {
			if _, err := tx.Exec(ctx, claim, r.Name, d.ID); err != nil {
				return err
			}
		}
		if d.numbered() {
			_, err = advance(ctx, tx, r.Name, d)
		}
		return err
	})
	if err != nil {
		return err
	}
	const longest = 200 // bytes: it becomes part of an advisory
	text := reason.Error()
	_ = d.msg.TermWithReason(text[:min(len(text), longest)]) // if it does not get through, the next delivery finds it processed
	return nil
}

// Dead returns up to limit events that a consumer has given up, the oldest first.
func Dead(ctx context.Context, db DB, consumer string, limit int) (all []DeadEvent, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, deadList, consumer, limit)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, scanDead)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", DeadTable, err)
	}
	return all, nil
}

// Retry handles an event of the dead once more, in the transaction that takes it out of the table. It stays there when handle
// fails. The error wraps ErrNotDead if it is not there.
func Retry(ctx context.Context, db DB, consumer, eventID string, handle func(context.Context, pgx.Tx, Message) error) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, deadGet, consumer, eventID)
		if err != nil {
			return err
		}
		dead, err := pgx.CollectExactlyOneRow(rows, scanDead)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotDead
		}
		if err != nil {
			return err
		}
		if err := handle(ctx, tx, dead.Message); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, deadDelete, consumer, eventID)
		return err
	})
	if err != nil {
		return fmt.Errorf("retry event %q of consumer %q: %w", eventID, consumer, err)
	}
	return nil
}

func scanDead(row pgx.CollectableRow) (e DeadEvent, err error) {
	var id string
	var sequence int64
	var header map[string][]string
	err = row.Scan(&id, &e.Stream, &sequence, &e.Subject, &header, &e.Data, &e.Reason, &e.Attempts, &e.FailedAt)
	e.StreamSequence, e.Header = uint64(sequence), nats.Header(header)
	e.Message.fill()
	e.ID = id
	return e, err
}
