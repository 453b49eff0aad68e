package test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/slot"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// ident quotes a name for SQL.
func ident(name ...string) string { return pgx.Identifier(name).Sanitize() }

// An event between slot and publication can never be read: the relay says why, and stops.
func TestC12_PublicationYoungerThanSlot(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{NoSlot: true, Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	w.Exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, w.Slot)

	code, stdout, stderr := w.Do("slot", "create")
	if code == 0 || !strings.Contains(stderr, "publication") {
		t.Errorf("slot create without a publication beside a slot: exit %d\n%s%s", code, stdout, stderr)
	}
	var publications int
	if err := w.Conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_publication`).Scan(&publications); err != nil || publications != 0 {
		t.Errorf("%d publications after a refused slot create, %v", publications, err)
	}
	relay := w.Start()
	if code := relay.Exit(); code != 6 {
		t.Errorf("run without a publication: exit %d, want 6", code)
	}

	insert(w, 1, 1)
	before := walLSN(w)
	w.Exec(`CREATE PUBLICATION ` + ident(w.Publication) + ` FOR TABLE outbox WITH (publish = 'insert')`)
	if code, stdout, stderr := w.Do("slot", "create"); code == 0 && !strings.Contains(stdout, "exist") {
		t.Errorf("slot create beside a younger publication: exit %d\n%s%s", code, stdout, stderr)
	}
	relay = w.Start()
	if sandbox.PG(t).Major() >= 18 { // it skips such events without an error: a warning is all that can be had
		relay.WaitLog(string(slot.CodePublicationMaybeYounger))
		stopped(t, relay)
		return
	}
	watch.Limit(before)
	if code := relay.Exit(); code != 6 {
		t.Errorf("exit %d, want 6", code)
	}
	for _, text := range []string{"older than publication", "creating the publication again does not help", "relay slot drop"} {
		if !strings.Contains(relay.Log(), text) {
			t.Errorf("the log does not say %q", text)
		}
	}
	starts(t, w, 1) // it has not tried again
	if n := w.Count(); n != 0 {
		t.Errorf("%d messages", n)
	}
}

// A publication with all operations: what is no INSERT is passed over.
func TestC13_OtherOperationsArePassedOver(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{NoSlot: true, Stream: window100ms})
	w.Exec(`CREATE PUBLICATION ` + ident(w.Publication) + ` FOR TABLE outbox`)
	w.MustDo("slot", "create")
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start()
	insert(w, 1, 2)
	w.Exec(`UPDATE outbox SET topic = 'order.changed' WHERE id = $1`, eventID(1))
	w.Exec(`DELETE FROM outbox WHERE id = $1`, eventID(2))
	w.Exec(`TRUNCATE outbox`)
	w.WaitCount(2)
	w.WaitConfirmed()
	insert(w, 3, 3)
	w.ExpectIDs(eventIDs(1, 3))
	w.WaitConfirmed()
	relay.WaitLog(string(slot.CodePublicationMoreOperations))
	stopped(t, relay)
	if n := w.Count(); n != 3 {
		t.Errorf("%d messages", n)
	}
	oneHolder(t, watch)
}

// The publication that the relay makes leaves the application's own UPDATE and DELETE alone.
func TestC13_OwnPublicationIsInsertOnly(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms, DDL: []string{
		`CREATE TABLE outbox (id uuid, topic text, payload jsonb)`, // no primary key: no replica identity
	}})
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start()
	insert(w, 1, 2)
	w.Exec(`UPDATE outbox SET topic = 'order.changed' WHERE id = $1`, eventID(1))
	w.Exec(`DELETE FROM outbox WHERE id = $1`, eventID(2))
	insert(w, 3, 3)
	w.ExpectIDs(eventIDs(1, 3))
	w.WaitConfirmed()
	stopped(t, relay)
	if strings.Contains(relay.Log(), "level=WARN") {
		t.Error("it warns of its own publication")
	}
	oneHolder(t, watch)
}

// Names that need quotes, in every place where a name is used.
func TestC30_QuotedNames(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{
		NoSlot: true, Stream: window100ms, Table: `"My-App"."Outbox"`,
		DDL: []string{
			`CREATE SCHEMA "My-App"`, `CREATE SCHEMA other`,
			`CREATE TABLE other.outbox (id uuid, topic text, payload jsonb)`,
			`CREATE TABLE "My-App".outbox (id uuid, topic text, payload jsonb)`,
		},
	})
	w.Publication = `Relay-"Pub`
	w.MustDo("outbox", "create")
	w.MustDo("slot", "create")
	watch := w.Watch()
	defer watch.Stop()
	last := 0
	write := func() {
		last++
		w.Exec(`INSERT INTO other.outbox VALUES ($1, 'order.created', '{}')`, eventID(last+100))
		w.Exec(`INSERT INTO "My-App".outbox VALUES ($1, 'order.created', '{}')`, eventID(last+200))
		w.Exec(`INSERT INTO "My-App"."Outbox" (id, topic, payload) VALUES ($1, 'order.created', '{}')`, eventID(last))
	}
	for range 2 {
		write() // while no relay runs
		relay := w.Start()
		write()
		w.ExpectIDs(eventIDs(1, last))
		w.WaitConfirmed()
		if code, stdout, _ := w.Do("status"); code != 0 {
			t.Errorf("status: exit %d\n%s", code, stdout)
		}
		stopped(t, relay)
	}
	if n := w.Count(); n != last {
		t.Errorf("%d messages", n)
	}
}

// A publication of all tables: the rows of the others are no events, and do not hold the position.
func TestC47_PublicationOfAllTables(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{NoSlot: true, Stream: window100ms})
	w.Exec(`CREATE PUBLICATION ` + ident(w.Publication) + ` FOR ALL TABLES`)
	w.MustDo("slot", "create")
	w.Exec(`CREATE SCHEMA other`)
	w.Exec(`CREATE TABLE other.outbox (LIKE outbox INCLUDING ALL)`)
	w.Exec(`CREATE TABLE a (id int PRIMARY KEY)`)
	w.Exec(`CREATE TABLE b (text text)`)
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start()
	relay.WaitLog(string(slot.CodePublicationWider))
	w.Exec(`INSERT INTO other.outbox (id, topic, payload) VALUES ($1, 'order.created', '{}')`, eventID(100))
	w.Exec(`INSERT INTO a VALUES (1)`)
	w.Exec(`BEGIN; INSERT INTO b VALUES ('x'); INSERT INTO a VALUES (2); COMMIT`)
	w.WaitConfirmed()
	insert(w, 1, 1)
	w.Exec(`UPDATE a SET id = 3 WHERE id = 2`)
	w.ExpectIDs(eventIDs(1, 1))
	w.WaitConfirmed()
	stopped(t, relay)
	if n := w.Count(); n != 1 {
		t.Errorf("%d messages", n)
	}
	oneHolder(t, watch)
}

// Kinds of messages that the relay does not need: Type, Origin, logical messages.
func TestC48_UnknownKindsOfMessages(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms, DDL: []string{
		`CREATE TYPE kind AS ENUM ('order.created', 'order.paid')`,
		`CREATE DOMAIN note AS text CHECK (length(VALUE) < 100)`,
		`CREATE TABLE outbox (id uuid PRIMARY KEY, topic kind NOT NULL, payload jsonb NOT NULL, note note)`,
	}})
	watch := w.Watch()
	defer watch.Stop()
	relay := w.Start()
	leads(t, relay)
	w.Exec(`SELECT pg_logical_emit_message(true, 'hb', 'x'), pg_logical_emit_message(false, 'hb', 'x')`)
	insert(w, 1, 1)
	w.Exec(`SELECT pg_replication_origin_create($1)`, w.Slot)
	w.Exec(`SELECT pg_replication_origin_session_setup($1)`, w.Slot)
	insert(w, 2, 2)
	w.Exec(`SELECT pg_replication_origin_session_reset()`)
	w.Exec(`SELECT pg_replication_origin_drop($1)`, w.Slot)
	tx, err := w.Conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`SELECT pg_logical_emit_message(true, 'hb', 'inside')`,
		`INSERT INTO outbox VALUES ('` + eventID(3) + `', 'order.paid', '{}', 'a note')`,
		`SAVEPOINT s`, `INSERT INTO outbox VALUES ('` + eventID(99) + `', 'order.paid', '{}', 'undone')`, `ROLLBACK TO s`,
		`INSERT INTO outbox VALUES ('` + eventID(4) + `', 'order.paid', '{}')`,
	} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.ExpectIDs(eventIDs(1, 4))
	w.WaitConfirmed()
	stopped(t, relay)
	oneHolder(t, watch)
}
