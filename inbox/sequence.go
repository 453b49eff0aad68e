package inbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// GapError says that the numbers of an aggregate's events are not one after the other.
type GapError struct {
	AggregateID  string
	Sequence     int64 // of this event
	LastSequence int64 // that was processed
}

// Missing reports whether events before this one are missing; else the number has been passed already.
func (e *GapError) Missing() bool { return e.Sequence > e.LastSequence }

func (e *GapError) Error() string {
	if e.Missing() {
		return fmt.Sprintf("aggregate %q: number %d comes after %d: what is between them is missing", e.AggregateID, e.Sequence, e.LastSequence)
	}
	return fmt.Sprintf("aggregate %q: number %d comes after %d", e.AggregateID, e.Sequence, e.LastSequence)
}

const (
	sequenceNew = `INSERT INTO ` + SequencesTable + ` (consumer, aggregate_id, sequence) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING`
	sequenceGet = `SELECT sequence FROM ` + SequencesTable + ` WHERE consumer = $1 AND aggregate_id = $2 FOR UPDATE`
	sequenceSet = `UPDATE ` + SequencesTable + ` SET sequence = greatest(sequence, $3) WHERE consumer = $1 AND aggregate_id = $2`
)

// number notes how far the aggregate is. Another transaction of the same aggregate is waited for. The first event of an
// aggregate that this consumer sees may have any number. The error is a *GapError unless gaps are accepted.
func (r *runner) number(ctx context.Context, tx pgx.Tx, d *delivery) error {
	if !d.numbered() {
		return nil
	}
	last, err := advance(ctx, tx, r.Name, d)
	if err != nil {
		return fmt.Errorf("note the number in %s: %w", SequencesTable, err)
	}
	if last == 0 || d.Sequence == last+1 {
		return nil
	}
	gap := &GapError{AggregateID: d.AggregateID, Sequence: d.Sequence, LastSequence: last}
	if r.OnGap == GapAccept {
		r.Log.Warn("the numbers of an aggregate's events are not one after the other", "consumer", r.Name, "event_id", d.ID, "reason", gap)
		return nil
	}
	return gap
}

// advance returns the number before.
func advance(ctx context.Context, tx pgx.Tx, consumer string, d *delivery) (last int64, err error) {
	batch := &pgx.Batch{} // one round trip
	batch.Queue(sequenceNew, consumer, d.AggregateID)
	batch.Queue(sequenceGet, consumer, d.AggregateID).QueryRow(func(row pgx.Row) error { return row.Scan(&last) })
	batch.Queue(sequenceSet, consumer, d.AggregateID, d.Sequence)
	return last, tx.SendBatch(ctx, batch).Close()
}
