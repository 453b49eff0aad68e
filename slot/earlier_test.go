package slot

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

func TestResendDeliversEarlierRowsOnceAndInOrder(t *testing.T) {
	t.Parallel()
	for name, ddl := range map[string]string{
		"plain": "", "partitioned": partitioned,
		"odd columns": `CREATE TABLE outbox (id uuid, topic text, payload text, "No" int GENERATED ALWAYS AS IDENTITY, g text GENERATED ALWAYS AS (topic) STORED)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bedAt(t, sandbox.Database(t))
			if ddl == "" {
				b.table()
			} else {
				b.exec(ddl)
			}
			if name == "partitioned" {
				b.exec(`CREATE TABLE outbox_1 PARTITION OF outbox DEFAULT`)
			}
			ids := append(b.insert(resendBatch-1), b.insert(1)...)
			ids = append(ids, b.insert(resendBatch/2)...)
			created := b.create()
			if created.EarlierRows == nil || *created.EarlierRows != int64(len(ids)) || created.ResendSQL == "" {
				t.Fatalf("created = %+v", created)
			}
			later := b.insert(3)
			batches := 0
			for ; ; batches++ {
				tag, err := b.conn.Exec(b.ctx(), created.ResendSQL, pgx.QueryExecModeSimpleProtocol)
				if err != nil {
					t.Fatalf("%s: %v", created.ResendSQL, err)
				}
				if tag.RowsAffected() == 0 {
					break
				}
			}
			if batches != 2 {
				t.Errorf("%d batches", batches)
			}
			if got, want := b.through(), slices.Concat(later, ids); !slices.Equal(got, want) {
				t.Errorf("through the slot: %d ids, want %d in the order of the table", len(got), len(want))
			}
			if n := b.count(`SELECT count(*) FROM outbox`); n != len(ids)+3 {
				t.Errorf("%d rows in the table", n)
			}
		})
	}
}
