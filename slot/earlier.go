package slot

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/outbox"
)

// resendBatch is the number of rows that one run of the resend statement moves.
const resendBatch = 10_000

// countEarlier counts the rows that the slot does not cover, in the snapshot that meets it without gap or overlap. That
// it cannot be done is no reason to give the slot up.
func (c *creation) countEarlier(ctx context.Context, snapshot string, created *Created) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	n, boundary, err := c.countIn(ctx, snapshot)
	if err != nil {
		created.EarlierUnknown = fmt.Errorf("count earlier rows: %w", err)
		return
	}
	created.EarlierRows = &n
	if n > 0 {
		created.ResendSQL = resendSQL(c.cfg.Table, c.state.Table, boundary)
	}
}

// boundary is the slot's snapshot: an earlier row's xmin precedes before and is not among running.
type boundary struct {
	before  string
	running []string
}

func (c *creation) countIn(ctx context.Context, snapshot string) (n int64, b boundary, err error) {
	tx, err := c.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return 0, b, err
	}
	defer func() {
		// Read only: there is nothing that a failing rollback could keep, and the connection is closed after it.
		_ = tx.Rollback(context.WithoutCancel(ctx))
	}()
	if _, err = tx.Exec(ctx, "SET TRANSACTION SNAPSHOT '"+strings.ReplaceAll(snapshot, "'", "''")+"'"); err != nil {
		return 0, b, err
	}
	// xid8 holds the epoch, a row's xmin does not: only the lower half is compared.
	err = tx.QueryRow(ctx, `
		SELECT pg_snapshot_xmax(s)::xid::text, ARRAY(SELECT x::xid::text FROM pg_snapshot_xip(s) AS x)
		FROM pg_current_snapshot() AS s`, pgx.QueryExecModeExec).Scan(&b.before, &b.running)
	if err != nil {
		return 0, b, err
	}
	err = tx.QueryRow(ctx, "SELECT count(*) FROM "+c.cfg.Table.SQL(), pgx.QueryExecModeExec).Scan(&n)
	return n, b, err
}

// resendSQL is the statement that moves one batch of earlier rows to the end of the WAL. A row that was inserted again has
// a new xmin, so it is not found a second time, and the batches end by themselves. tableoid stands beside ctid for
// partitioned tables. The inserted rows are sorted: the order of DELETE ... RETURNING is nobody's promise.
func resendSQL(name outbox.Table, t *Table, b boundary) string {
	var columns []string
	overriding := ""
	for _, c := range t.Columns {
		if c.Generated {
			continue
		}
		if c.IdentityAlways {
			overriding = " OVERRIDING SYSTEM VALUE"
		}
		columns = append(columns, pgx.Identifier{c.Name}.Sanitize())
	}
	list := strings.Join(columns, ", ")
	oldest := "tableoid, ctid"
	sorted := "relay_tableoid, relay_ctid"
	if t.Column(outbox.ColumnCreatedAt) != nil {
		oldest, sorted = outbox.ColumnCreatedAt+", "+oldest, outbox.ColumnCreatedAt+", "+sorted
	}
	earlier := "age(xmin) > age('" + b.before + "'::xid)"
	if len(b.running) > 0 {
		earlier += " AND xmin <> ALL ('{" + strings.Join(b.running, ",") + "}'::xid[])"
	}
	return fmt.Sprintf(`WITH old AS (
  DELETE FROM %[1]s WHERE (tableoid, ctid) IN (
    SELECT tableoid, ctid FROM %[1]s
    WHERE %[2]s
    ORDER BY %[3]s LIMIT %[4]d)
  RETURNING %[5]s, tableoid AS relay_tableoid, ctid AS relay_ctid)
INSERT INTO %[1]s (%[5]s)%[6]s
SELECT %[5]s FROM old ORDER BY %[7]s;`, name.SQL(), earlier, oldest, resendBatch, list, overriding, sorted)
}
