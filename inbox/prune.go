package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrTooYoung is the error of a Prune that could let an event take effect twice.
var ErrTooYoung = errors.New("refused: an event could take effect twice")

// PruneConfig says what a Prune may delete.
type PruneConfig struct {
	DB        DB
	Name      string // of the consumer in the tables
	Stream    jetstream.Stream
	Consumer  jetstream.Consumer
	OlderThan time.Duration // since the event was processed

	// NoReplay says that nobody will make the consumer anew or move it back. Else any message that the stream still has can
	// come again, and a stream without a max age keeps all.
	NoReplay bool
}

// pruneBlocks is how many blocks of the table a statement looks at.
const pruneBlocks = 128

// pruneMargin is for the clocks of two servers.
const pruneMargin = time.Minute

const (
	pruneSize   = `SELECT pg_relation_size('` + Table + `') / current_setting('block_size')::int`
	pruneDelete = `DELETE FROM ` + Table + ` WHERE ctid >= format('(%s,0)', $1::bigint)::tid AND ctid < format('(%s,0)', $2::bigint)::tid
		AND consumer = $3 AND processed_at < $4`
)

// Prune deletes what a consumer has processed longer than OlderThan ago, in small transactions, and returns how many rows.
// Consuming goes on meanwhile.
//
// A row may go when its event cannot be delivered to the consumer again. That can happen to a message that JetStream has no
// ack of, however old it is: rows that are not older than the oldest such message stay. And if the consumer is made anew, to
// every message that the stream still has: OlderThan must be more than the stream's max age, or NoReplay set. The error wraps
// ErrTooYoung then.
func Prune(ctx context.Context, cfg PruneConfig) (deleted int64, err error) {
	before, err := cfg.before(ctx)
	if err != nil {
		return 0, fmt.Errorf("prune %s of consumer %q: %w", Table, cfg.Name, err)
	}
	var blocks int64
	err = pgx.BeginFunc(ctx, cfg.DB, func(tx pgx.Tx) error { return tx.QueryRow(ctx, pruneSize).Scan(&blocks) })
	for at := int64(0); at < blocks && err == nil; at += pruneBlocks {
		err = pgx.BeginFunc(ctx, cfg.DB, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, pruneDelete, at, at+pruneBlocks, cfg.Name, before)
			deleted += tag.RowsAffected()
			return err
		})
	}
	if err != nil {
		return deleted, fmt.Errorf("prune %s of consumer %q, after %d rows: %w", Table, cfg.Name, deleted, err)
	}
	return deleted, nil
}

// before returns the time before which an event must have been processed.
func (cfg PruneConfig) before(ctx context.Context) (time.Time, error) {
	stream, err := cfg.Stream.Info(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the stream: %w", err)
	}
	maxAge := stream.Config.MaxAge
	switch {
	case cfg.NoReplay:
	case maxAge == 0:
		return time.Time{}, fmt.Errorf("stream %q keeps its messages without a max age, so a consumer that is made anew gets all of them: "+
			"give the stream a max age, or set NoReplay: %w", stream.Config.Name, ErrTooYoung)
	case cfg.OlderThan < maxAge+pruneMargin:
		return time.Time{}, fmt.Errorf("the stream %q keeps messages for %s, so OlderThan must be at least %s, not %s: %w",
			stream.Config.Name, maxAge, maxAge+pruneMargin, cfg.OlderThan, ErrTooYoung)
	}
	before := time.Now().Add(-cfg.OlderThan)
	pending, err := cfg.pending(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if !pending.IsZero() && pending.Before(before) {
		before = pending
	}
	return before, nil
}

// pending returns when the oldest message that the consumer has not acked was stored, less the margin; zero if there is none.
func (cfg PruneConfig) pending(ctx context.Context) (time.Time, error) {
	info, err := cfg.Consumer.Info(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the consumer: %w", err)
	}
	if info.NumAckPending == 0 && info.NumPending == 0 {
		return time.Time{}, nil
	}
	oldest, err := cfg.Stream.GetMsg(ctx, info.AckFloor.Stream+1, jetstream.WithGetMsgSubject(">"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return time.Time{}, nil // it has left the stream
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("look at the oldest message without an ack: %w", err)
	}
	return oldest.Time.Add(-pruneMargin), nil
}
