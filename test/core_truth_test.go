package test

import (
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/test/harness"
)

// truth is PostgreSQL's own record of what was committed and in which order: a second slot, read by SQL.
type truth struct {
	w    *harness.World
	slot string
}

func newTruth(w *harness.World) truth {
	x := truth{w: w, slot: w.Slot + "_truth"}
	w.Exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, x.slot)
	return x
}

// ids returns the ids of the outbox in commit order, of all that has committed since the last call.
func (x truth) ids(t *testing.T) []string {
	t.Helper()
	rows, err := x.w.Conn.Query(t.Context(),
		`SELECT data FROM pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)`,
		x.slot, pgx.Identifier{x.w.Publication}.Sanitize())
	if err != nil {
		t.Fatal(err)
	}
	messages, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, data := range messages {
		m, err := pglogrepl.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if row, ok := m.(*pglogrepl.InsertMessage); ok {
			ids = append(ids, string(row.Tuple.Columns[0].Data))
		}
	}
	return ids
}
