package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// insertBoth runs a writer by both interfaces, each in a database with an outbox of its own, and returns what the rows hold.
func insertBoth(t *testing.T, w Writer, ddl string, drafts []Draft, check func(t *testing.T, ids []string, conn *pgx.Conn, err error)) {
	t.Helper()
	for _, name := range []string{"pgx", "sql"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := sandbox.Database(t)
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
			if _, err := conn.Exec(t.Context(), ddl); err != nil {
				t.Fatal(err)
			}
			var ids []string
			if name == "pgx" {
				var tx pgx.Tx
				if tx, err = conn.Begin(t.Context()); err != nil {
					t.Fatal(err)
				}
				if ids, err = w.Insert(t.Context(), tx, drafts...); err == nil {
					err = tx.Commit(t.Context())
				} else if rollback := tx.Rollback(t.Context()); rollback != nil {
					t.Error(rollback)
				}
			} else {
				db, open := sql.Open("pgx", url)
				if open != nil {
					t.Fatal(open)
				}
				defer db.Close()
				tx, begin := db.BeginTx(t.Context(), nil)
				if begin != nil {
					t.Fatal(begin)
				}
				if ids, err = w.InsertSQL(t.Context(), tx, drafts...); err == nil {
					err = tx.Commit()
				} else if rollback := tx.Rollback(); rollback != nil {
					t.Error(rollback)
				}
			}
			check(t, ids, conn, err)
		})
	}
}

func mustDDL(t *testing.T, o DDLOptions) string {
	t.Helper()
	ddl, err := DDL(Table{Schema: "public", Name: "outbox"}, o)
	if err != nil {
		t.Fatal(err)
	}
	return ddl
}

func TestInsertFillsAllColumns(t *testing.T) {
	t.Parallel()
	w := Writer{Inject: func(_ context.Context, c Carrier) { c.Set("traceparent", "00-1-2-01") }}
	drafts := []Draft{
		{Topic: "order.created", Payload: []byte(`{"a":1}`)},
		{
			ID: "00000000-0000-4000-8000-000000000001", Topic: "order.paid", Payload: []byte(`[]`), AggregateID: "42", Sequence: 7,
			Headers: Carrier{"tenant": "x", "traceparent": "mine"},
		},
	}
	insertBoth(t, w, mustDDL(t, DDLOptions{}), drafts, func(t *testing.T, ids []string, conn *pgx.Conn, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		rows, err := conn.Query(t.Context(), `SELECT concat_ws('|', topic, payload, aggregate_id, sequence, headers), id::text FROM outbox ORDER BY ctid`)
		if err != nil {
			t.Fatal(err)
		}
		var got, gotIDs []string
		for rows.Next() {
			var text, id string
			if err := rows.Scan(&text, &id); err != nil {
				t.Fatal(err)
			}
			got, gotIDs = append(got, text), append(gotIDs, id)
		}
		want := []string{
			`order.created|{"a": 1}|{"traceparent": "00-1-2-01"}`,
			`order.paid|[]|42|7|{"tenant": "x", "traceparent": "mine"}`,
		}
		if !slices.Equal(got, want) || !slices.Equal(gotIDs, ids) || ids[0][14] != '7' || ids[1] != drafts[1].ID {
			t.Errorf("rows %q, ids %v; want %q, %v", got, gotIDs, want, ids)
		}
	})
}

// A table without the optional columns will do, and so does a payload that is no JSON.
func TestInsertIntoOtherTables(t *testing.T) {
	t.Parallel()
	raw := []byte{0, 0xff, '\n', '\\'}
	for _, payload := range []string{"text", "bytea", "json"} {
		t.Run(payload, func(t *testing.T) {
			t.Parallel()
			body := raw
			if payload != "bytea" {
				body = []byte(`{"b":1,  "a":1e400}`)
			}
			ddl := `CREATE TABLE outbox (id text PRIMARY KEY, topic text, payload ` + payload + `, status text DEFAULT 'pending')`
			insertBoth(t, Writer{PayloadType: payload}, ddl, []Draft{{ID: "a", Topic: "t", Payload: body}},
				func(t *testing.T, _ []string, conn *pgx.Conn, err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
					var got []byte
					sql := `SELECT payload::text::bytea FROM outbox WHERE status = 'pending'`
					if payload == "bytea" {
						sql = `SELECT payload FROM outbox`
					}
					if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil || !bytes.Equal(got, body) {
						t.Errorf("payload %q, %v", got, err)
					}
				})
		})
	}
}

// What the relay could never store the application cannot commit.
func TestInsertRefusesPoison(t *testing.T) {
	t.Parallel()
	ok := Draft{Topic: "t", Payload: []byte(`{}`)}
	for _, test := range []struct {
		spoil func(*Draft)
		says  string
	}{
		{func(d *Draft) { d.Topic = "" }, "topic"},
		{func(d *Draft) { d.Topic = "a b" }, "subject"},
		{func(d *Draft) { d.Topic = "a.>" }, "subject"},
		{func(d *Draft) { d.ID = " x" }, "its id begins or ends with a blank"},
		{func(d *Draft) { d.AggregateID = "a\nb" }, "aggregate id has a line break"},
		{func(d *Draft) { d.Headers = Carrier{"Nats-Rollup": "all"} }, "reserved"},
		{func(d *Draft) { d.Headers = Carrier{"a": "b\r\nc: d"} }, "line break"},
		{func(d *Draft) { d.Payload = []byte(`{"a":`) }, "not JSON"},
		{func(d *Draft) { d.Payload = nil }, "not JSON"},
		{func(d *Draft) { d.Payload = []byte(`"` + strings.Repeat("x", DefaultMessageBytes) + `"`) }, "over the limit"},
	} {
		bad := ok
		test.spoil(&bad)
		w := &Writer{}
		_, err := w.insert(t.Context(), []Draft{ok, bad}, func(string, []any) error {
			t.Errorf("%+v was sent", bad)
			return nil
		})
		var poison *PoisonError
		if !errors.As(err, &poison) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "event 2 of 2") {
			t.Errorf("%.60s: %v, want %q", fmt.Sprintf("%+v", bad), err, test.says)
		}
	}
}

// The size that is checked is the size on the wire: jsonb comes back with blanks.
func TestInsertCountsTheBlanksOfJSONB(t *testing.T) {
	t.Parallel()
	payload := []byte(`[` + strings.Repeat(`1,`, 5000) + `1]`)
	limit := 0
	for size := len(payload); limit == 0; size++ {
		w := &Writer{MaxBytes: size}
		if _, err := w.insert(t.Context(), []Draft{{Topic: "t", Payload: payload}}, func(string, []any) error { return nil }); err == nil {
			limit = size
		}
	}
	if canonical := len(payload) + 5000; limit < canonical || limit > canonical+600 {
		t.Errorf("%d bytes suffice for %d", limit, canonical)
	}
}

func TestInsertSettings(t *testing.T) {
	t.Parallel()
	for _, w := range []Writer{{PayloadType: "xml"}, {Template: mustTemplate(t, "x.{region}")}} {
		if _, err := w.insert(t.Context(), []Draft{{Topic: "t"}}, nil); !errors.Is(err, ErrPayloadType) && !errors.Is(err, ErrTemplate) {
			t.Errorf("%+v: %v", w, err)
		}
	}
}

// Many events are as many statements as needed, in their order.
func TestInsertMany(t *testing.T) {
	t.Parallel()
	drafts := make([]Draft, statementEvents+1)
	for i := range drafts {
		drafts[i] = Draft{Topic: "t", Payload: []byte("1"), AggregateID: "a", Sequence: int64(i + 1)}
	}
	insertBoth(t, Writer{}, mustDDL(t, DDLOptions{}), drafts, func(t *testing.T, ids []string, conn *pgx.Conn, err error) {
		t.Helper()
		var n, ordered int
		if err == nil {
			err = conn.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE sequence = place) FROM (SELECT sequence, row_number() OVER (ORDER BY ctid) place FROM outbox) x`).Scan(&n, &ordered)
		}
		if err != nil || n != len(drafts) || ordered != n || !slices.IsSorted(ids) {
			t.Errorf("%d rows, %d in order, %v", n, ordered, err)
		}
	})
}

// BenchmarkInsert compares with the same statement by hand: 100 events in each transaction.
func BenchmarkInsert(b *testing.B) {
	conn, err := pgx.Connect(b.Context(), sandbox.Database(b))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(b.Context()))
	ddl, err := DDL(Table{Schema: "public", Name: "outbox"}, DDLOptions{})
	if err == nil {
		_, err = conn.Exec(b.Context(), ddl)
	}
	if err != nil {
		b.Fatal(err)
	}
	const n = 100
	payload := []byte(`{"order": 42, "customer": "c", "text": "` + strings.Repeat("x", 200) + `"}`)
	drafts := slices.Repeat([]Draft{{Topic: "order.created", Payload: payload, AggregateID: "42"}}, n)
	var statement strings.Builder
	statement.WriteString("INSERT INTO outbox (id, topic, payload, aggregate_id) VALUES ")
	for i := range n {
		fmt.Fprintf(&statement, "%s($%d, $%d, $%d, $%d)", []string{"", ", "}[min(i, 1)], 4*i+1, 4*i+2, 4*i+3, 4*i+4)
	}
	byHand := func(tx pgx.Tx) error {
		args := make([]any, 0, 4*n)
		for range n {
			id, err := uuid.NewV7()
			if err != nil {
				return err
			}
			args = append(args, id.String(), "order.created", string(payload), "42")
		}
		_, err := tx.Exec(b.Context(), statement.String(), args...)
		return err
	}
	for name, run := range map[string]func(tx pgx.Tx) error{
		"by_hand": byHand,
		"Insert":  func(tx pgx.Tx) error { _, err := Insert(b.Context(), tx, drafts...); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				err := pgx.BeginFunc(b.Context(), conn, run)
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
