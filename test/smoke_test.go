package test

import (
	"testing"

	"github.com/seed-1cfd9858/relay/test/harness"
)

func TestClassicOutbox(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{DDL: []string{
		`CREATE TABLE orders (id int PRIMARY KEY)`,
		`CREATE TABLE outbox (id uuid PRIMARY KEY, topic text NOT NULL, payload jsonb NOT NULL, status text NOT NULL, created_at timestamptz NOT NULL)`,
	}})
	relay := w.Start()
	const insert = `INSERT INTO outbox (id, topic, payload, status, created_at) VALUES ($1, 'order.created', $2, 'pending', now())`
	for i, id := range []string{"0190b5a0-0000-7000-8000-000000000001", "0190b5a0-0000-7000-8000-000000000002", "0190b5a0-0000-7000-8000-000000000003"} {
		tx, err := w.Conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `INSERT INTO orders VALUES ($1)`, i); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), insert, id, `{"order": 1}`); err != nil {
			t.Fatal(err)
		}
		end := tx.Commit
		if i == 1 {
			end = tx.Rollback
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.ExpectIDs([]string{"0190b5a0-0000-7000-8000-000000000001", "0190b5a0-0000-7000-8000-000000000003"})
	m := w.Messages()[0]
	if m.Subject != w.Subject("order.created") || m.Body != `{"order": 1}` {
		t.Errorf("message is %+v", m)
	}
	w.WaitConfirmed()
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
}
