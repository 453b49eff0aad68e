package dialogue

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/slot"
)

type realDatabase struct {
	server  *sandbox.Postgres
	stopped chan struct{} // closed when a shutdown is over; nil if none was begun
}

func newRealDatabase(t *testing.T, major int) *realDatabase {
	t.Helper()
	server, err := sandbox.StartPostgres(t.Context(), sandbox.PostgresConfig{Major: major, Settings: map[string]string{"autovacuum": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return &realDatabase{server: server}
}

// reset makes the database as new.
func (d *realDatabase) reset(t *testing.T) {
	t.Helper()
	if d.stopped != nil {
		<-d.stopped
		d.stopped = nil
		d.start(t)
	}
	d.exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
	sandbox.WaitFor(t, patience, "the slot is dropped", func() (bool, error) {
		conn, err := pgx.Connect(t.Context(), d.server.URL("postgres"))
		if err != nil {
			return false, err
		}
		defer func() { _ = conn.Close(context.Background()) }()
		_, err = conn.Exec(t.Context(), "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
		return err == nil, err
	})
	d.exec(t, "DROP PUBLICATION IF EXISTS outbox_relay", "DROP TABLE IF EXISTS outbox, customers, unpublished",
		"CREATE TABLE outbox (id text PRIMARY KEY, topic text, payload text, aggregate_id text, sequence bigint, headers jsonb)", "CREATE TABLE customers (id text, name text)",
		"CREATE TABLE unpublished (id int)", "CREATE PUBLICATION outbox_relay FOR TABLE outbox, customers WITH (publish = 'insert')",
		"SELECT pg_create_logical_replication_slot('outbox_relay', 'pgoutput')", "CHECKPOINT")
}

func (d *realDatabase) exec(t *testing.T, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func (d *realDatabase) config(t *testing.T) *pgconn.Config {
	cfg, err := pgconn.ParseConfig(d.server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func (d *realDatabase) commit(t *testing.T, ids []string, others int, ddl bool) {
	statements := []string{"BEGIN"}
	if len(ids) == 0 {
		statements = append(statements, "INSERT INTO unpublished VALUES (1)")
	}
	for i, id := range ids {
		if ddl && i == 1 {
			statements = append(statements, "ALTER TABLE outbox ADD COLUMN note text DEFAULT 'a column that no relay needs'")
		}
		statements = append(statements, fmt.Sprintf("INSERT INTO outbox VALUES ('%s', 't', '{}', NULL)", id))
		if i < others {
			statements = append(statements, "INSERT INTO customers VALUES ('1', 'somebody')")
		}
	}
	d.exec(t, append(statements, "COMMIT")...)
}

func (d *realDatabase) state(t *testing.T) slot.State {
	conn, err := pgx.Connect(t.Context(), d.server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	s, err := slot.Inspect(t.Context(), conn, names)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (d *realDatabase) checkpoint(t *testing.T) { d.exec(t, "CHECKPOINT") }

func (d *realDatabase) crash(t *testing.T) {
	if err := d.server.Stop(t.Context(), sandbox.Immediate); err != nil {
		t.Fatal(err)
	}
}

func (d *realDatabase) stop(*testing.T) {
	stopped := make(chan struct{})
	d.stopped = stopped
	go func() { // beyond the end of the script
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		_ = d.server.Stop(ctx, sandbox.Fast)
	}()
}

func (d *realDatabase) start(t *testing.T) {
	if err := d.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (d *realDatabase) endSession(t *testing.T) {
	d.exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
}

func (d *realDatabase) explain(t *testing.T) {
	const last = 4000 // bytes of the server's log
	log, err := d.server.Log()
	state := d.state(t)
	t.Logf("the server's slot: %+v, confirmed %v, flushed %v; %v\n%s", state.Slot, state.Slot.ConfirmedFlushLSN, state.FlushLSN, err, log[max(0, len(log)-last):])
}
