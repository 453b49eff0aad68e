package slot

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/outbox"
)

// PayloadSample is what some rows of the table say about the size of its payloads.
type PayloadSample struct {
	Rows         int64 // that were looked at
	Whole        bool  // they are all rows of the table
	LargestBytes int64 // of their payloads as the message carries them
}

// samplePages bounds what is read of a large table.
const samplePages = 200

// samplePayloads reads the payloads' sizes of a small table, or of some pages of a large one. Sizes as stored are known
// without reading what is stored out of line; only the largest of these payloads are read whole.
func samplePayloads(ctx context.Context, conn *pgx.Conn, table outbox.Table, payloadType string) (*PayloadSample, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it only read
	if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '3s'; SET LOCAL lock_timeout = '1s'"); err != nil {
		return nil, err
	}
	var pages int64
	err = tx.QueryRow(ctx, `SELECT coalesce((SELECT sum(pg_relation_size(p.relid)) FROM pg_partition_tree(t.oid) p WHERE p.isleaf),
		pg_relation_size(t.oid))::bigint / current_setting('block_size')::int FROM (SELECT to_regclass($1::text)) t(oid)`,
		pgx.QueryExecModeExec, table.SQL()).Scan(&pages)
	if err != nil {
		return nil, err
	}
	percent := 100.0
	if pages > samplePages {
		percent = 100 * samplePages / float64(pages)
	}
	length := "octet_length(payload::text)"
	if payloadType == "bytea" {
		length = "octet_length(payload)"
	}
	s := &PayloadSample{Whole: pages <= samplePages}
	err = tx.QueryRow(ctx, fmt.Sprintf(`
		WITH sampled AS MATERIALIZED (SELECT payload, pg_column_size(payload) AS stored FROM %s TABLESAMPLE SYSTEM (%f)),
		largest AS (SELECT payload FROM sampled ORDER BY stored DESC NULLS LAST LIMIT 3)
		SELECT (SELECT count(*) FROM sampled), coalesce(max(%s), 0) FROM largest`, table.SQL(), percent, length),
		pgx.QueryExecModeExec).Scan(&s.Rows, &s.LargestBytes)
	if err != nil {
		return nil, err
	}
	return s, nil
}
