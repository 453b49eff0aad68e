package slot

import (
	"slices"
	"testing"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/outbox"
)

func TestInspectEmptyAndWhole(t *testing.T) {
	t.Parallel()
	b := bedAt(t, sandbox.Database(t))
	s := b.inspect()
	if s.Slot != nil || s.Publication != nil || s.Table != nil {
		t.Errorf("something in an empty database: %+v", s)
	}
	if s.SystemID == "" || s.FlushLSN == nil || s.ServerVersion < 140000 || s.WALLevel != "logical" || s.Database == "" ||
		!s.CanReplicate || s.MaxSlots == 0 || s.At.IsZero() {
		t.Errorf("unknown facts: %+v", s)
	}
	b.wantProblems("!slot_missing", "!publication_missing", "!table_missing")

	b.table()
	b.create()
	b.wantProblems()
	s = b.inspect()
	if !s.Publication.OlderThanSlot || !s.Publication.Published || s.Publication.OtherTables != 0 {
		t.Errorf("publication %+v", s.Publication)
	}
	if s.Slot.RestartLSN == nil || s.Slot.ConfirmedFlushLSN == nil || s.Slot.CatalogXmin == nil || s.Slot.WALStatus != "reserved" ||
		s.Slot.UnconfirmedBytes == nil || *s.Slot.UnconfirmedBytes < 0 || s.Slot.Active || s.Slot.Plugin != "pgoutput" {
		t.Errorf("slot %+v", s.Slot)
	}
	if c := s.Table.Column("id"); c == nil || c.Type != "uuid" || !c.NotNull || c.Generated || !s.Table.PrimaryKey || !s.Table.HasIdentity {
		t.Errorf("table %+v", s.Table)
	}
	if s.ServerVersion >= 170000 && (s.Slot.Failover == nil || s.Slot.Synced == nil || s.Slot.InactiveSince == nil) {
		t.Errorf("columns of 17 are not read: %+v", s.Slot)
	}
}

func TestC06_RecreatedTableIsNotPublished(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.create()
	b.exec(`DROP TABLE outbox`)
	b.wantProblems("!table_missing")
	b.table()
	b.wantProblems("!table_not_published")

	b.exec(`ALTER PUBLICATION ` + b.cfg.Publication + ` ADD TABLE outbox`)
	b.wantProblems()
	b.exec(`ALTER PUBLICATION ` + b.cfg.Publication + ` DROP TABLE outbox`)
	b.wantProblems("!table_not_published")
	b.exec(`DROP PUBLICATION ` + b.cfg.Publication)
	b.wantProblems("!publication_missing")
}

func TestC12_PublicationAfterSlot(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.exec(`SELECT pg_create_logical_replication_slot('` + b.cfg.Slot + `', 'pgoutput')`)
	b.insert(1)
	b.wantProblems("!publication_missing")
	_, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{})
	wantMismatch(t, err, CodePublicationMissing)
	b.exec(`CREATE PUBLICATION ` + b.cfg.Publication + ` FOR TABLE outbox WITH (publish = 'insert')`)
	b.wantProblems("publication_maybe_younger")
}

func TestC12_OptionsChangedLaterAreNoSuspicion(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.create()
	b.exec(`ALTER PUBLICATION ` + b.cfg.Publication + ` SET (publish = 'insert, update')`)
	b.wantProblems("publication_more_operations")
	b.exec(`ALTER PUBLICATION ` + b.cfg.Publication + ` SET (publish = 'update')`)
	b.wantProblems("!publication_without_insert", "publication_more_operations")
}

func TestC13_MoreOperationsWithoutIdentity(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.exec(`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey`, `CREATE PUBLICATION `+b.cfg.Publication+` FOR TABLE outbox`)
	created := b.create()
	if created.PublicationCreated || created.Existed {
		t.Errorf("created = %+v", created)
	}
	b.wantProblems("publication_more_operations")
	if b.inspect().Table.HasIdentity {
		t.Error("a table without key has an identity")
	}
	b.insert(1)
	if _, err := b.conn.Exec(b.ctx(), `DELETE FROM outbox`); sqlState(err) != "55000" {
		t.Errorf("DELETE = %v, want the refusal that the warning speaks of", err)
	}
}

func TestC13_OwnPublicationLeavesUpdatesAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.exec(`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey`)
	b.create()
	b.insert(1)
	b.exec(`UPDATE outbox SET topic = 'y'`, `DELETE FROM outbox`)
	b.wantProblems()
}

const partitioned = `CREATE TABLE outbox (id uuid, topic text, payload jsonb, created_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at)`

func TestC25_Partitions(t *testing.T) {
	t.Parallel()
	b := bedAt(t, sandbox.Database(t))
	b.exec(partitioned, `CREATE PUBLICATION `+b.cfg.Publication+` FOR TABLE outbox WITH (publish = 'insert')`)
	b.wantProblems("!slot_missing", "!partition_without_root") // also without any partition
	b.exec(`CREATE TABLE outbox_1 PARTITION OF outbox DEFAULT`)
	b.wantProblems("!slot_missing", "!partition_without_root")
	_, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{})
	wantMismatch(t, err, CodePartitionWithoutRoot)

	leaf := b.cfg
	leaf.Table.Name = "outbox_1"
	if s, err := Inspect(b.ctx(), b.conn, leaf); err != nil || !s.Publication.Published {
		t.Errorf("a partition is published under its own name: %+v, %v", s.Publication, err)
	}
	b.exec(`ALTER PUBLICATION ` + b.cfg.Publication + ` SET (publish_via_partition_root = true)`)
	b.wantProblems("!slot_missing")
	s, err := Inspect(b.ctx(), b.conn, leaf)
	if err != nil || s.Publication.ViaParent != "public.outbox" || s.Problems(leaf)[1].Code != CodePartitionUnderParent {
		t.Errorf("a partition under its root: %+v, %v", s.Publication, err)
	}
	b.create()
	ids := b.insert(3)
	b.exec(`ALTER TABLE outbox DETACH PARTITION outbox_1`, `CREATE TABLE outbox_2 PARTITION OF outbox DEFAULT`)
	ids = append(ids, b.insert(2)...)
	if got := b.through(); !slices.Equal(got, ids) {
		t.Errorf("through the slot: %v, want %v", got, ids)
	}
	b.wantProblems()
}

func TestC30_QuotedNames(t *testing.T) {
	t.Parallel()
	b := bedAt(t, sandbox.Database(t))
	b.cfg.Publication = `Relay-Pub's "x"`
	b.cfg.Table = outbox.Table{Schema: "My-App", Name: "Outbox"}
	b.exec(`CREATE SCHEMA "My-App"`, `CREATE SCHEMA other`, `CREATE TABLE other.outbox (id uuid, topic text, payload text)`)
	b.table()
	b.insert(1)
	first := b.create()
	if first.EarlierRows == nil || *first.EarlierRows != 1 {
		t.Errorf("created = %+v", first)
	}
	b.exec(first.ResendSQL)
	b.exec(`INSERT INTO other.outbox VALUES (gen_random_uuid(), 'x', 'x')`)
	if got := b.through(); len(got) != 1 {
		t.Errorf("through the slot: %v", got)
	}
	if again := b.create(); !again.Existed || again.StartLSN != first.StartLSN {
		t.Errorf("again = %+v", again)
	}
	b.wantProblems()
	if err := Drop(b.ctx(), b.conn, b.cfg, DropOptions{Publication: true}); err != nil {
		t.Error(err)
	}
	b.wantNothingLeft()
}

func TestC47_WiderPublication(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.exec(`CREATE SCHEMA other`, `CREATE TABLE other.outbox (LIKE outbox)`,
		`CREATE PUBLICATION `+b.cfg.Publication+` FOR TABLE outbox, other.outbox WITH (publish = 'insert')`)
	b.create()
	b.wantProblems("publication_wider")
	if n := b.inspect().Publication.OtherTables; n != 1 {
		t.Errorf("%d other tables", n)
	}
	b.exec(`DROP PUBLICATION `+b.cfg.Publication, `CREATE PUBLICATION `+b.cfg.Publication+` FOR ALL TABLES WITH (publish = 'insert')`)
	b.wantProblems("publication_wider", "publication_maybe_younger")
}

func TestColumnsAndFilters(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.create()
	if b.inspect().ServerVersion >= 150000 {
		b.exec(`ALTER PUBLICATION ` + b.cfg.Publication + ` SET TABLE outbox WHERE (topic <> 'x')`)
		b.wantProblems("!row_filter")
		b.exec(`ALTER PUBLICATION ` + b.cfg.Publication + ` SET TABLE outbox (id, topic, created_at, headers, aggregate_id)`)
		b.wantProblems("!column_not_published", "column_not_published")
		b.exec(`ALTER PUBLICATION ` + b.cfg.Publication + ` SET TABLE outbox`)
	}
	b.exec(`ALTER TABLE outbox DROP COLUMN payload`)
	b.wantProblems("!column_missing")
	b.exec(`ALTER TABLE outbox ADD payload text GENERATED ALWAYS AS (topic || '!') STORED`)
	b.wantProblems("!column_generated")
	b.exec(`ALTER TABLE outbox DROP payload, ADD payload text, DROP headers, ADD headers jsonb GENERATED ALWAYS AS ('{}') STORED`)
	b.wantProblems("column_generated")
}

func TestUnfitTables(t *testing.T) {
	t.Parallel()
	b := bedAt(t, sandbox.Database(t))
	b.exec(`CREATE UNLOGGED TABLE outbox (id uuid, topic text, payload text)`)
	b.wantProblems("!slot_missing", "!publication_missing", "!table_unfit")
	_, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{})
	wantMismatch(t, err, CodeTableUnfit)
	b.exec(`DROP TABLE outbox`, `CREATE VIEW outbox AS SELECT 1 AS id`)
	b.wantProblems("!slot_missing", "!publication_missing", "!table_unfit")
	b.wantNothingLeft()
}

func TestForeignSlots(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.exec(`CREATE PUBLICATION ` + b.cfg.Publication + ` FOR TABLE outbox WITH (publish = 'insert')`)
	for _, c := range []struct {
		sql  string
		code Code
	}{
		{`SELECT pg_create_physical_replication_slot($1)`, CodeSlotPhysical},
		{`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, CodeSlotWrongPlugin},
		{`SELECT pg_create_logical_replication_slot($1, 'pgoutput', false, true)`, CodeSlotTwoPhase},
		{`SELECT pg_create_logical_replication_slot($1, 'pgoutput', true)`, CodeSlotTemporary},
	} {
		if _, err := b.conn.Exec(b.ctx(), c.sql, b.cfg.Slot); err != nil {
			t.Fatal(err)
		}
		if got := b.problems(); !slices.Contains(got, "!"+string(c.code)) {
			t.Errorf("problems = %q, want %q", got, c.code)
		}
		_, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{})
		wantMismatch(t, err, c.code)
		if _, err := b.conn.Exec(b.ctx(), `SELECT pg_drop_replication_slot($1)`, b.cfg.Slot); err != nil {
			t.Fatal(err)
		}
	}
	other := newBed(t)
	other.create()
	b.cfg.Slot = other.cfg.Slot
	b.wantProblems("!slot_wrong_database")
}
