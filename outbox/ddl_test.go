package outbox

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Run(m)) }

func TestDDL(t *testing.T) {
	t.Parallel()
	ddl, err := DDL(Table{Schema: "public", Name: "outbox"}, DDLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(ddl, "CREATE TABLE public.outbox (\n  id           uuid        PRIMARY KEY, ") || !strings.Contains(ddl, "jsonb       NOT NULL") {
		t.Error(ddl)
	}
	if _, err := DDL(Table{Schema: "public", Name: "outbox"}, DDLOptions{PayloadType: "jsonb); DROP TABLE x; --"}); !errors.Is(err, ErrPayloadType) {
		t.Errorf("error = %v", err)
	}
}

func TestCreateTable(t *testing.T) {
	t.Parallel()
	conn := ddlConn(t)
	for _, table := range []Table{
		{"public", "outbox"},
		{"public", "order"},
		{"My-App", `The "Outbox"`},
		{"user", "table"},
	} {
		for _, payload := range PayloadTypes() {
			exec(t, conn, `CREATE SCHEMA IF NOT EXISTS `+pgx.Identifier{table.Schema}.Sanitize(), `DROP TABLE IF EXISTS `+table.SQL())
			if existed, err := Create(t.Context(), conn, table, DDLOptions{PayloadType: payload}); existed || err != nil {
				t.Fatalf("%s: existed %v, %v", table, existed, err)
			}
			exec(t, conn, `INSERT INTO `+table.SQL()+` (id, topic, payload) VALUES (gen_random_uuid(), 't', '{}')`)
			if existed, err := Create(t.Context(), conn, table, DDLOptions{}); !existed || err != nil {
				t.Errorf("%s again: existed %v, %v", table, existed, err)
			}
		}
	}
}

func TestCreateTableRefusals(t *testing.T) {
	t.Parallel()
	conn := ddlConn(t)
	exec(t, conn, `CREATE TABLE half (id uuid, subject text)`, `CREATE VIEW view AS SELECT 1 AS id, 2 AS topic, 3 AS payload`,
		`CREATE TABLE polled (id bigint, topic text, payload text, status text NOT NULL)`)
	_, err := Create(t.Context(), conn, Table{"public", "half"}, DDLOptions{})
	if !errors.Is(err, ErrNotOutbox) || !strings.Contains(err.Error(), "topic, payload") {
		t.Errorf("half a table: %v", err)
	}
	if _, err := Create(t.Context(), conn, Table{"public", "view"}, DDLOptions{}); !errors.Is(err, ErrNotOutbox) {
		t.Errorf("a view: %v", err)
	}
	if existed, err := Create(t.Context(), conn, Table{"public", "polled"}, DDLOptions{}); !existed || err != nil {
		t.Errorf("a table with more columns: %v, %v", existed, err)
	}
	if _, err := Create(t.Context(), conn, Table{"nowhere", "outbox"}, DDLOptions{}); err == nil || !strings.Contains(err.Error(), `CREATE SCHEMA "nowhere"`) {
		t.Errorf("no schema: %v", err)
	}
}

func ddlConn(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), sandbox.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Log(err)
		}
	})
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// The statements of a table that is partitioned by day make it, with its partitions.
func TestPartitionDDL(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), sandbox.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	table, day := Table{Schema: "public", Name: "outbox"}, time.Date(2026, 2, 28, 23, 59, 0, 0, time.UTC)
	ddl, err := DDL(table, DDLOptions{PartitionByDay: true})
	if err != nil {
		t.Fatal(err)
	}
	statements := []string{ddl}
	for i := range 2 {
		more, err := PartitionDDL(table, day.AddDate(0, 0, i))
		if err != nil {
			t.Fatal(err)
		}
		statements = append(statements, more...)
	}
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%v: %s", err, s)
		}
	}
	var where string
	err = conn.QueryRow(t.Context(), `INSERT INTO outbox (id, topic, payload, created_at) VALUES (gen_random_uuid(), 't', '{}', '2026-03-01 00:00+00') RETURNING tableoid::regclass::text`).Scan(&where)
	if err != nil || where != "outbox_p20260301" {
		t.Errorf("%s, %v", where, err)
	}
	if _, err := PartitionDDL(Table{Schema: "public", Name: strings.Repeat("x", 60)}, day); !errors.Is(err, ErrTable) {
		t.Errorf("a name that is too long: %v", err)
	}
}
