package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-1cfd9858/relay/outbox"
)

// part is a table that holds rows: the outbox itself, or a partition.
type part struct {
	table   outbox.Table
	until   *time.Time // end of a partition by created_at; nil: its rows go one by one
	pending bool       // half detached
}

// partsSQL finds the leaves. A partition directly under the outbox, by ranges of created_at alone, can go as a whole.
const partsSQL = `
	SELECT n.nspname::text, c.relname::text,
		CASE WHEN i.inhparent = $1::regclass AND pt.partstrat = 'r' AND pt.partnatts = 1 AND a.attname = 'created_at'
			THEN (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([^'']+)''\)'))[1]::timestamptz END,
		false
	FROM pg_partition_tree($1::regclass) t JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
	LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
	LEFT JOIN pg_partitioned_table pt ON pt.partrelid = i.inhparent
	LEFT JOIN pg_attribute a ON a.attrelid = pt.partrelid AND a.attnum = pt.partattrs[0]
	WHERE t.isleaf AND NOT coalesce(i.inhdetachpending, false)
	UNION ALL
	SELECT n.nspname::text, c.relname::text, NULL, true
	FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE i.inhparent = $1::regclass AND i.inhdetachpending
	ORDER BY 3, 2`

// parts returns the tables that hold the outbox's rows, the oldest first, after finishing what an earlier pass has begun.
func (p *pruner) parts(ctx context.Context) ([]part, error) {
	var kind string
	var dated bool
	err := p.conn.QueryRow(ctx, `SELECT c.relkind::text, EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'created_at' AND NOT attisdropped)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, p.Table.Schema, p.Table.Name).Scan(&kind, &dated)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("table %s: %w", p.Table, ErrNoTable)
	case err != nil:
		return nil, wrap("look at the table", err)
	case !dated:
		return nil, fmt.Errorf("table %s: %w", p.Table, ErrNoCreatedAt)
	case kind != "p":
		return []part{{table: p.Table}}, nil
	}
	rows, err := p.conn.Query(ctx, partsSQL, p.Table.SQL())
	if err != nil {
		return nil, wrap("look at the partitions", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (q part, err error) {
		err = row.Scan(&q.table.Schema, &q.table.Name, &q.until, &q.pending)
		return q, err
	})
	if err != nil {
		return nil, wrap("look at the partitions", err)
	}
	whole := all[:0]
	for _, q := range all {
		if !q.pending {
			whole = append(whole, q)
		} else if !p.DryRun {
			_, err := p.conn.Exec(ctx, "ALTER TABLE "+p.Table.SQL()+" DETACH PARTITION "+q.table.SQL()+" FINALIZE")
			if err != nil {
				return nil, wrap("finish detaching "+q.table.String(), err)
			}
		}
	}
	return whole, nil
}

// undelivered asks whether a partition holds anything that is not delivered for certain, or was never sent.
func (p *pruner) undelivered(ctx context.Context, table outbox.Table) (open bool, earlier int64, err error) {
	err = p.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM ONLY `+table.SQL()+` WHERE NOT age(xmin) > age($1::xid)),
		(SELECT count(*) FROM ONLY `+table.SQL()+` WHERE age(xmin) > age($2::xid))`, p.fence, p.first).Scan(&open, &earlier)
	return open, earlier, wrap("look into "+table.String(), err)
}

// removed is the comment of a partition that is to be dropped once it is detached.
const removed = "relay: detached from the outbox, to be dropped"

// drop takes a partition away whose days are over, if all in it is delivered.
func (p *pruner) drop(ctx context.Context, q part) error {
	open, earlier, err := p.undelivered(ctx, q.table)
	if err != nil {
		return err
	}
	p.result.Earlier += earlier
	if open || earlier > 0 {
		p.result.Busy = append(p.result.Busy, q.table.String())
		return nil
	}
	if p.DryRun {
		p.result.Partitions = append(p.result.Partitions, q.table.String())
		return nil
	}
	if _, err := p.conn.Exec(ctx, "COMMENT ON TABLE "+q.table.SQL()+" IS '"+removed+"'"); err != nil {
		return wrap("mark "+q.table.String(), err)
	}
	_, err = p.conn.Exec(ctx, "ALTER TABLE "+p.Table.SQL()+" DETACH PARTITION "+q.table.SQL()+" CONCURRENTLY")
	return wrap("detach "+q.table.String(), err) // leftovers drops it
}

// leftovers drops what is detached, of this pass or an earlier one. Somebody may have written into it until it was: that has
// to be delivered first.
func (p *pruner) leftovers(ctx context.Context) error {
	if p.DryRun {
		return nil
	}
	rows, err := p.conn.Query(ctx, `SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind = 'r' AND NOT c.relispartition AND obj_description(c.oid, 'pg_class') = $2 ORDER BY 1`, p.Table.Schema, removed)
	if err != nil {
		return wrap("look for detached partitions", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return wrap("look for detached partitions", err)
	}
	for _, name := range names {
		table := outbox.Table{Schema: p.Table.Schema, Name: name}
		if err := p.begin(ctx); err != nil {
			return err
		}
		if err := p.confirmed(ctx, p.end); err != nil {
			return err
		}
		open, earlier, err := p.undelivered(ctx, table)
		if err != nil {
			return err
		}
		if open || earlier > 0 {
			p.result.Busy = append(p.result.Busy, table.String())
			continue
		}
		if _, err := p.conn.Exec(ctx, "DROP TABLE "+table.SQL()); err != nil {
			return wrap("drop "+table.String(), err)
		}
		p.result.Partitions = append(p.result.Partitions, table.String())
	}
	return nil
}

// AheadDays is for how many days from today an outbox that is partitioned by day has partitions, after KeepAhead.
const AheadDays = 14

// KeepAhead makes the partitions of today and the days after it, where they are missing, and returns the names of those it
// made. A table that is not partitioned by created_at is left as it is: made is nil then, and partitioned false.
func KeepAhead(ctx context.Context, conn *pgx.Conn, table outbox.Table, today time.Time) (made []string, partitioned bool, err error) {
	if _, err = Ahead(ctx, conn, table, today); errors.Is(err, errNotByDay) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", lockTimeout.Milliseconds())); err != nil {
		return nil, true, wrap("prepare the session", err)
	}
	for day := range AheadDays + 1 {
		at := today.AddDate(0, 0, day)
		name := table.Partition(at)
		var there bool
		if err := conn.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, name.SQL()).Scan(&there); err != nil {
			return made, true, wrap("look for partition "+name.String(), err)
		}
		if there {
			continue
		}
		if err := makePartition(ctx, conn, table, at); err != nil {
			return made, true, wrap("make partition "+name.String(), err)
		}
		made = append(made, name.String())
	}
	return made, true, nil
}

func makePartition(ctx context.Context, conn *pgx.Conn, table outbox.Table, day time.Time) error {
	statements, err := outbox.PartitionDDL(table, day)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { // attached or not there
		for _, s := range statements {
			if _, err := tx.Exec(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
	var refused *pgconn.PgError
	if errors.As(err, &refused) && (refused.Code == "42P07" || refused.Code == "42P17") {
		return nil // somebody made it just now, or the day is in another partition
	}
	return err
}

var errNotByDay = errors.New("the table is not partitioned by ranges of created_at")

// Ahead returns until when an outbox that is partitioned by ranges of created_at takes rows without a hole from today on.
func Ahead(ctx context.Context, conn *pgx.Conn, table outbox.Table, today time.Time) (until time.Time, err error) {
	var byDay bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_partitioned_table pt JOIN pg_attribute a ON a.attrelid = pt.partrelid AND a.attnum = pt.partattrs[0]
		WHERE pt.partrelid = to_regclass($1) AND pt.partstrat = 'r' AND pt.partnatts = 1 AND a.attname = 'created_at')`, table.SQL()).Scan(&byDay)
	if err != nil {
		return until, wrap("look at the partitions", err)
	}
	if !byDay {
		return until, errNotByDay
	}
	rows, err := conn.Query(ctx, `SELECT m[1]::timestamptz, m[2]::timestamptz FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
		regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\) TO \(''([^'']+)''\)') m
		WHERE i.inhparent = $1::regclass AND NOT i.inhdetachpending AND m IS NOT NULL ORDER BY 1`, table.SQL())
	if err != nil {
		return until, wrap("look at the partitions", err)
	}
	var from, to time.Time
	until = today
	_, err = pgx.ForEachRow(rows, []any{&from, &to}, func() error {
		if !from.After(until) && to.After(until) {
			until = to
		}
		return nil
	})
	return until, wrap("look at the partitions", err)
}
