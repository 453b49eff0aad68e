package app

import (
	"context"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// TestDoctorPostgres breaks one thing in PostgreSQL at a time.
func TestDoctorPostgres(t *testing.T) {
	t.Parallel()
	pg := sandbox.PG(t)
	role, idle, chief := newRole(t, pg, "REPLICATION"), newRole(t, pg, ""), newRole(t, pg, "SUPERUSER")
	database, elsewhere := sandbox.Database(t), sandbox.Database(t)
	ascii := asciiDatabase(t, pg)
	for _, c := range []ailment{
		{"nothing", func(*patient) {}, ""},
		{"unreachable", func(p *patient) { p.env = append(p.env, "RELAY_DATABASE_URL="+nowhere[0][len("DATABASE_URL="):]) }, "!postgres_unreachable"},
		{"password", func(p *patient) { p.role = url.UserPassword(role.Username(), "wrong") }, "!postgres_unreachable"},
		{"pooler", func(p *patient) { p.database = refuseReplication(p.T, p.database, "08P01") }, "!connection_pooled"},
		{"no replication", func(p *patient) { p.database = refuseReplication(p.T, p.database, "28000") }, "!replication_refused"},

		{"role", func(p *patient) { p.become(idle) }, "!role_without_replication"},
		{"superuser", func(p *patient) { p.become(chief) }, "role_superuser"},
		{"select", func(p *patient) { p.sql(`REVOKE SELECT ON outbox FROM ` + role.Username()) }, "table_not_readable"},
		{"usage", func(p *patient) { p.sql(`REVOKE USAGE ON SCHEMA ` + p.name + ` FROM ` + role.Username()) }, "table_not_readable"},
		{"owner", func(p *patient) { p.relay("slot drop --drop-publication") }, "!publication_missing !slot_missing role_cannot_publish"},

		{"slot", func(p *patient) { p.relay("slot drop") }, "!slot_missing"},
		{"plugin", func(p *patient) { p.otherSlot(`'test_decoding'`) }, "!slot_wrong_plugin"},
		{"two phase", func(p *patient) { p.otherSlot(`'pgoutput', false, true`) }, "!slot_two_phase"},
		{"database", func(p *patient) {
			p.relay("slot drop")
			there := superuser(p.T, elsewhere)
			if _, err := there.Exec(p.Context(), `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, p.name); err != nil {
				p.Fatal(err)
			}
		}, "!slot_wrong_database"},

		{"publication", func(p *patient) { p.sql(`DROP PUBLICATION ` + p.name) }, "!publication_missing role_cannot_publish"},
		{"younger publication", func(p *patient) {
			p.sql(`DROP PUBLICATION `+p.name, `CREATE PUBLICATION `+p.name+` FOR TABLE outbox WITH (publish = 'insert')`)
		}, "publication_maybe_younger"},
		{"no insert", func(p *patient) { p.alter(`SET (publish = '')`) }, "!publication_without_insert"},
		{"operations", func(p *patient) { p.alter(`SET (publish = 'insert, delete')`) }, "publication_more_operations"},
		{"width", func(p *patient) { p.sql(`CREATE TABLE orders (id int)`); p.alter(`ADD TABLE orders`) }, "publication_wider"},
		{"new table", func(p *patient) {
			p.sql(`DROP TABLE outbox`)
			p.relay("outbox create")
			p.sql(`GRANT SELECT ON outbox TO ` + role.Username())
		}, "!table_not_published"},
		{"partitions", func(p *patient) { p.partition(); p.alter(`SET (publish_via_partition_root = false)`) }, "!partition_without_root"},
		{"partition", func(p *patient) {
			p.partition()
			p.sql(`GRANT SELECT ON outbox_1 TO ` + role.Username())
			p.env = append(p.env, "RELAY_TABLE="+p.name+".outbox_1")
		}, "!partition_under_parent"},

		{"table", func(p *patient) { p.sql(`DROP TABLE outbox`) }, "!table_missing"},
		{"view", func(p *patient) {
			p.sql(`ALTER TABLE outbox RENAME TO rows`, `CREATE VIEW outbox AS TABLE rows`, `GRANT SELECT ON outbox TO `+role.Username())
		}, "!table_unfit publication_wider"},
		{"column", func(p *patient) { p.sql(`ALTER TABLE outbox DROP payload`) }, "!column_missing"},
		{"subject column", func(p *patient) { p.flags = []string{"--subject", p.subject("{tenant}")} }, "!column_missing"},
		{"generated column", func(p *patient) {
			p.sql(`ALTER TABLE outbox DROP topic, ADD topic text NOT NULL GENERATED ALWAYS AS (headers ->> 'x') STORED`)
		}, "!column_generated"},
		{"nullable column", func(p *patient) { p.sql(`ALTER TABLE outbox ALTER topic DROP NOT NULL`) }, "column_nullable"},
		{"headers", func(p *patient) { p.sql(`ALTER TABLE outbox ALTER headers TYPE text[] USING NULL`) }, "!column_type"},
		{"payload", func(p *patient) { p.sql(`ALTER TABLE outbox ALTER payload TYPE int USING 0`) }, "column_type"},
		{"id", func(p *patient) { p.sql(`ALTER TABLE outbox ALTER id TYPE bigint USING 0`) }, "id_not_uuid"},
		{"key", func(p *patient) { p.sql(`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey`) }, "id_not_unique"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, database, role).settle()
			c.sick(p)
			p.diagnose(c, wellKnown)
		})
	}
	t.Run("encoding", func(t *testing.T) {
		t.Parallel()
		newPatient(t, ascii, role).settle().diagnose(ailment{want: "database_encoding"}, wellKnown)
	})
	for _, c := range []ailment{ // column lists and row filters came with 15
		{"row filter", func(p *patient) { p.alter(`SET TABLE outbox WHERE (topic <> 'x')`) }, "!row_filter"},
		{"column list", func(p *patient) { p.alter(`SET TABLE outbox (id, topic, aggregate_id, sequence, headers)`) }, "!column_not_published"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if pg.Major() < 15 {
				t.Skip("needs PostgreSQL 15")
			}
			p := newPatient(t, database, role).settle()
			c.sick(p)
			p.diagnose(c, wellKnown)
		})
	}
}

// become gives the relay another role, with the same rights on the table.
func (p *patient) become(role *url.Userinfo) {
	p.Helper()
	p.sql(`GRANT USAGE ON SCHEMA `+p.name+` TO `+role.Username(), `GRANT SELECT ON outbox TO `+role.Username())
	p.role = role
}

// otherSlot puts another slot in the place of the relay's.
func (p *patient) otherSlot(arguments string) {
	p.Helper()
	p.relay("slot drop")
	p.sql(`SELECT pg_create_logical_replication_slot('` + p.name + `', ` + arguments + `)`)
}

func (p *patient) alter(change string) {
	p.Helper()
	p.sql(`ALTER PUBLICATION ` + p.name + ` ` + change)
}

// partition makes all anew, with a table that has a partition.
func (p *patient) partition() {
	p.Helper()
	p.relay("slot drop --drop-publication")
	p.sql(`DROP TABLE outbox`, `CREATE TABLE outbox (id uuid, topic text NOT NULL, payload jsonb, created_at timestamptz NOT NULL DEFAULT now(),
		PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at)`, `CREATE TABLE outbox_1 PARTITION OF outbox DEFAULT`,
		`GRANT SELECT ON outbox TO `+p.role.Username())
	p.relay("slot create")
}

// asciiDatabase makes a database without an encoding and returns its URL.
func asciiDatabase(t *testing.T, pg *sandbox.Postgres) string {
	t.Helper()
	name := sandbox.Name(t)
	conn := superuser(t, pg.URL("postgres"))
	if _, err := conn.Exec(t.Context(), `CREATE DATABASE `+name+` TEMPLATE template0 ENCODING 'SQL_ASCII'`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.DropDatabase(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
	return pg.URL(name)
}

// refuseReplication stands between relay and server: it passes normal connections on and refuses replication with the
// code. It returns the database's URL through it.
func refuseReplication(t *testing.T, database, code string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	target := u.Host
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { passOn(t, conn, target, code) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); all.Wait() })
	u.Host = listener.Addr().String()
	return u.String()
}

func passOn(t *testing.T, client net.Conn, target, code string) {
	defer client.Close()
	backend := pgproto3.NewBackend(client, client)
	first, err := backend.ReceiveStartupMessage()
	startup, ok := first.(*pgproto3.StartupMessage)
	if err != nil || !ok {
		return
	}
	if startup.Parameters["replication"] != "" {
		backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: "unsupported startup parameter: replication"})
		_ = backend.Flush()
		return
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(t.Context(), "tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	bytes, err := startup.Encode(nil)
	if err != nil {
		return
	}
	if _, err := server.Write(bytes); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
	_, _ = io.Copy(server, client)
	_ = server.Close()
	back.Wait()
}

func TestDoctorText(t *testing.T) {
	t.Parallel()
	role := newRole(t, sandbox.PG(t), "REPLICATION")
	p := newPatient(t, sandbox.Database(t), role)
	p.relay("slot create")
	got := relay(t, p.environ(p.as(p.role)), "doctor")
	for _, want := range []string{
		"PostgreSQL ", "\n  ok    wal_level               logical\n", "\n  FAIL  stream                  stream " + p.stream + " does not exist\n",
		"\n        > relay stream create --stream " + p.stream + "\n", "1 failed: mend what failed, then ask again\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in\n%s", want, got.stdout)
		}
	}
	if got.code != exitVerdict || got.stderr != "" {
		t.Errorf("%+v", got)
	}
}
