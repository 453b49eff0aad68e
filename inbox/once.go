package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrArgument is the error of a consumer or an event without a name: nothing could tell its second delivery from its first.
var ErrArgument = errors.New("want a consumer and an event id")

const claim = `INSERT INTO ` + Table + ` (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`

// Once runs effect in the transaction unless the consumer has processed the event before, and reports whether it ran. What
// it did counts once the caller commits; ack the message after that, also when false is returned. After an error roll back:
// then the event was not processed.
//
// While another transaction processes the same event Once waits for its end. Under REPEATABLE READ and SERIALIZABLE the
// server may refuse instead (SQLSTATE 40001): roll back and try again.
func Once(ctx context.Context, tx pgx.Tx, consumer, eventID string, effect func(context.Context, pgx.Tx) error) (first bool, err error) {
	n, err := claimed(consumer, eventID, func() (int64, error) {
		tag, err := tx.Exec(ctx, claim, consumer, eventID)
		return tag.RowsAffected(), err
	})
	if err != nil || n == 0 {
		return false, err
	}
	return true, effect(ctx, tx)
}

// OnceSQL is Once for database/sql, with any driver of PostgreSQL.
func OnceSQL(ctx context.Context, tx *sql.Tx, consumer, eventID string, effect func(context.Context, *sql.Tx) error) (first bool, err error) {
	n, err := claimed(consumer, eventID, func() (int64, error) {
		result, err := tx.ExecContext(ctx, claim, consumer, eventID)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
	if err != nil || n == 0 {
		return false, err
	}
	return true, effect(ctx, tx)
}

func claimed(consumer, eventID string, insert func() (int64, error)) (int64, error) {
	if consumer == "" || eventID == "" {
		return 0, fmt.Errorf("consumer %q, event id %q: %w", consumer, eventID, ErrArgument)
	}
	n, err := insert()
	if err != nil {
		return 0, fmt.Errorf("note event %q of consumer %q in %s: %w", eventID, consumer, Table, err)
	}
	return n, nil
}
