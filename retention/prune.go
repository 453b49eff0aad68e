package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/outbox"
)

// Config says what a pass may delete.
type Config struct {
	Table       outbox.Table
	Slot        string
	Publication string
	OlderThan   time.Duration // by created_at
	Wait        time.Duration // for the confirmed LSN to come to the end of the WAL
	DryRun      bool          // only count
}

// Result is what a pass did, or would do.
type Result struct {
	Rows       int64    // deleted one by one
	Partitions []string // dropped
	Earlier    int64    // old rows that are older than the publication, and stay
	Busy       []string // partitions that are old and hold something that is not delivered yet: the next pass looks again
}

// Errors of a pass. Nothing was deleted then.
var (
	ErrNoTable       = errors.New("there is no such table")
	ErrNoCreatedAt   = errors.New("the table has no column created_at: nothing says how old a row is")
	ErrNoSlot        = errors.New("there is no such slot of this database: nothing says what is delivered")
	ErrNoPublication = errors.New("there is no such publication with this table: nothing is delivered")
	ErrNotConfirmed  = errors.New("the relay has not delivered everything yet: is one running?")
)

// pruner is one pass.
type pruner struct {
	Config
	conn   *pgx.Conn
	before time.Time     // created_at of what may go
	fence  string        // transactions older than this one had ended when the pass began
	end    pglogrepl.LSN // of the WAL then
	first  string        // the transaction that made the publication
	result Result
}

// Prune deletes what is old and delivered. The connection is the caller's, and must not be in a transaction. An error that is
// none of the package's is PostgreSQL's; what was deleted before it is in the result.
func Prune(ctx context.Context, conn *pgx.Conn, cfg Config) (Result, error) {
	p := &pruner{Config: cfg, conn: conn}
	err := p.pass(ctx)
	return p.result, err
}

func (p *pruner) pass(ctx context.Context) error {
	if err := p.settings(ctx); err != nil {
		return err
	}
	parts, err := p.parts(ctx)
	if err != nil {
		return err
	}
	if err := p.begin(ctx); err != nil {
		return err
	}
	if err := p.confirmed(ctx, p.end); err != nil {
		return err
	}
	for _, part := range parts {
		switch {
		case part.until == nil:
			err = p.rows(ctx, part)
		case !part.until.After(p.before):
			err = p.drop(ctx, part)
		}
		if err != nil {
			return err
		}
	}
	return p.leftovers(ctx)
}

// lockTimeout bounds how long a statement of ours waits for somebody else, and so how long others wait behind it.
const lockTimeout = 2 * time.Second

// settings prepares the session. What a crash of the server takes back of a deletion the next pass deletes again, so no commit
// of ours has the writers wait for the disk.
func (p *pruner) settings(ctx context.Context) error {
	_, err := p.conn.Exec(ctx, fmt.Sprintf("SET TIME ZONE 'UTC'; SET synchronous_commit = off; SET lock_timeout = %d", lockTimeout.Milliseconds()),
		pgx.QueryExecModeSimpleProtocol)
	return wrap("prepare the session", err)
}

const beginSQL = `SELECT now(), pg_snapshot_xmin(pg_current_snapshot())::xid::text, pg_current_wal_insert_lsn()::text,
	(SELECT coalesce((SELECT r.xmin FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = $1::regclass), p.xmin)::text FROM pg_publication p
		WHERE pubname = $2 AND pubinsert AND EXISTS (SELECT FROM pg_publication_tables t
			WHERE t.pubname = p.pubname AND format('%I.%I', t.schemaname, t.tablename)::regclass = $1::regclass))`

// begin draws the line between what a confirmed LSN will stand for and what not.
func (p *pruner) begin(ctx context.Context) error {
	var now time.Time
	var end string
	var first *string
	err := p.conn.QueryRow(ctx, beginSQL, p.Table.SQL(), p.Publication).Scan(&now, &p.fence, &end, &first)
	if err != nil {
		return wrap("look at the WAL and the publication", err)
	}
	if first == nil {
		return fmt.Errorf("publication %q: %w", p.Publication, ErrNoPublication)
	}
	p.first, p.before = *first, now.Add(-p.OlderThan)
	p.end, err = pglogrepl.ParseLSN(end)
	return wrap("look at the WAL", err)
}

const confirmedPoll = 200 * time.Millisecond

// confirmed waits until everything before an LSN is delivered.
func (p *pruner) confirmed(ctx context.Context, end pglogrepl.LSN) error {
	limit := time.NewTimer(p.Wait)
	defer limit.Stop()
	for {
		var text *string
		err := p.conn.QueryRow(ctx, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots
			WHERE slot_name = $1 AND database = current_database() AND plugin = 'pgoutput'`, p.Slot).Scan(&text)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && text == nil {
			return fmt.Errorf("slot %q: %w", p.Slot, ErrNoSlot)
		}
		if err != nil {
			return wrap("look at the slot", err)
		}
		confirmed, err := pglogrepl.ParseLSN(*text)
		if err != nil || confirmed >= end {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("slot %q is at %s and has to come to %s: %w", p.Slot, confirmed, end, ErrNotConfirmed)
		case <-time.After(confirmedPoll):
		}
	}
}

// The pace: a statement looks at so many blocks of the table, and the writers have the disk for so many times as long.
const (
	pieceBlocks = 32
	breathe     = 2
)

// rows deletes from one table, once through it from its beginning to its end.
func (p *pruner) rows(ctx context.Context, part part) error {
	name := part.table.SQL()
	var blocks int64
	err := p.conn.QueryRow(ctx, `SELECT pg_relation_size($1::regclass) / current_setting('block_size')::int`, name).Scan(&blocks)
	if err != nil {
		return wrap("measure "+part.table.String(), err)
	}
	const piece = ` WHERE ctid >= format('(%s,0)', $1::bigint)::tid AND ctid < format('(%s,0)', $2::bigint)::tid AND created_at < $3`
	const delivered = ` AND age(xmin) > age($4::xid) AND age(xmin) <= age($5::xid)`
	statement := `WITH gone AS (DELETE FROM ONLY ` + name + piece + delivered + ` RETURNING 1)`
	if p.DryRun {
		statement = `WITH gone AS (SELECT 1 FROM ONLY ` + name + piece + delivered + `)`
	}
	statement += ` SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM ONLY ` + name + piece + ` AND age(xmin) > age($5::xid))`
	for at := int64(0); at < blocks; at += pieceBlocks {
		began := time.Now()
		var gone, earlier int64
		if err := p.conn.QueryRow(ctx, statement, at, at+pieceBlocks, p.before, p.fence, p.first).Scan(&gone, &earlier); err != nil {
			return wrap(fmt.Sprintf("delete from %s, after %d rows", part.table, p.result.Rows), err)
		}
		p.result.Rows += gone
		p.result.Earlier += earlier
		if gone > 0 && !p.DryRun {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(breathe * min(time.Since(began), time.Second)):
			}
		}
	}
	return nil
}

func wrap(doing string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", doing, err)
	}
	return err
}
