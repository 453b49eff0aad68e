package slot

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/outbox"
)

// wellExamined is what Examine finds where all is well, on 18 with a failover slot.
func wellExamined() Examination {
	keep, off, failover := int64(1<<30), int64(0), true
	lsn := jsonLSN(100)
	s := State{
		Where: "h:5432/d", ServerVersion: 180001, SystemID: "7", WALLevel: "logical", Database: "d", Role: "relay", CanReplicate: true,
		Slots: 2, MaxSlots: 10, MaxWALSenders: 10, MaxSlotWALKeepBytes: &keep,
		Slot: &Slot{
			Name: "s", Plugin: "pgoutput", Type: "logical", Database: "d", ConfirmedFlushLSN: lsn.lsn(), WALStatus: "reserved", Failover: &failover,
		},
		Publication: &Publication{Insert: true, ViaRoot: true, OlderThanSlot: true, Member: true, Published: true},
		Table: &Table{Kind: "r", PrimaryKey: true, Columns: []Column{
			{Name: "id", Type: "uuid", NotNull: true}, {Name: "topic", Type: "text", NotNull: true}, {Name: "payload", Type: "jsonb"},
		}},
	}
	s.Publication.Columns = []string{"id", "topic", "payload"}
	return Examination{
		State: s, Encoding: "UTF8", Senders: 1, Standbys: 1, IdleSlotTimeoutSeconds: &off,
		StandbySlots: &[]StandbySlot{{Name: "standby", Ready: true}}, Rights: &Rights{Owner: "app", Schema: true, Select: true}, IDKey: true,
		ReplicationTried: true, ReplicationSystemID: "7",
	}
}

// TestDoctorChecks has what the servers of the other tests cannot show: other versions, standbys, poolers.
func TestDoctorChecks(t *testing.T) {
	t.Parallel()
	day := int64(86400)
	for name, c := range map[string]struct {
		sick func(*Examination)
		want string // "!" before a failure, "?" alone where nothing could be looked at
	}{
		"well":                {func(*Examination) {}, ""},
		"too old":             {func(e *Examination) { e.ServerVersion = 130010 }, "!postgres_version"},
		"too new":             {func(e *Examination) { e.ServerVersion = 190000 }, "postgres_version"},
		"idle timeout":        {func(e *Examination) { e.IdleSlotTimeoutSeconds = &day }, "idle_slot_timeout"},
		"before 18":           {func(e *Examination) { e.ServerVersion, e.IdleSlotTimeoutSeconds = 170000, nil }, ""},
		"standbys unset":      {func(e *Examination) { e.StandbySlots = &[]StandbySlot{} }, "standby_slots_unset"},
		"standby away":        {func(e *Examination) { (*e.StandbySlots)[0].Ready = false }, "!standby_slots_blocking"},
		"no failover":         {func(e *Examination) { e.Slot.Failover = nil }, "slot_without_failover"},
		"no failover at 16":   {func(e *Examination) { e.ServerVersion, e.Slot.Failover, e.StandbySlots = 160000, nil, nil }, "slot_without_failover"},
		"no standby":          {func(e *Examination) { e.Standbys, e.Slot.Failover = 0, nil }, ""},
		"session pooler":      {func(e *Examination) { e.Pooled = true }, "connection_pooled"},
		"refusing pooler":     {func(e *Examination) { e.Pooled, e.Replication = true, &pgconn.PgError{Code: "08P01"} }, "!connection_pooled"},
		"two clusters":        {func(e *Examination) { e.ReplicationSystemID = "8" }, "!replication_elsewhere"},
		"hidden system":       {func(e *Examination) { e.SystemID = "" }, ""},
		"no replication":      {func(e *Examination) { e.Replication = errors.New("reset") }, "!replication_refused"},
		"not tried":           {func(e *Examination) { e.CanReplicate, e.ReplicationTried = false, false }, "? !role_without_replication"},
		"own slot, none left": {func(e *Examination) { e.Slots = 10 }, ""},
		"slot unreserved":     {func(e *Examination) { e.Slot.WALStatus = "unreserved" }, "slot_unreserved"},
		"slot unfinished":     {func(e *Examination) { e.Slot.ConfirmedFlushLSN = nil }, "slot_unfinished"},
		"temporary":           {func(e *Examination) { e.Slot.Temporary = true }, "!slot_temporary"},
		"standby server":      {func(e *Examination) { e.InRecovery = true }, "!in_recovery"},
		"numeric(10,0) id":    {func(e *Examination) { e.Table.Columns[0].Type = "numeric(10,0)" }, "id_not_uuid"},
		"varchar(36) id":      {func(e *Examination) { e.Table.Columns[0].Type = "character varying(36)" }, ""},
	} {
		e := wellExamined()
		c.sick(&e)
		var got []string
		for _, check := range e.Checks(Config{Slot: "s", Publication: "p", Table: outbox.Table{Schema: "public", Name: "outbox"}}, []string{"topic"}) {
			switch {
			case check.Level == LevelUnknown:
				got = append(got, "?")
			case check.Level == LevelFail:
				got = append(got, "!"+string(check.Code))
			case check.Code != "":
				got = append(got, string(check.Code))
			}
			if check.Name == "" || check.Text == "" || (check.Code == "") != (check.Level == LevelOK || check.Level == LevelUnknown) {
				t.Errorf("%s: %+v", name, check)
			}
		}
		slices.Sort(got)
		want := strings.Fields(c.want)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestDoctorSample looks at tables of all kinds and sizes.
func TestDoctorSample(t *testing.T) {
	t.Parallel()
	b := bedAt(t, sandbox.Database(t))
	for _, c := range []struct {
		ddl, payloadType, value string
		rows                    int
		want                    PayloadSample
	}{
		{`CREATE TABLE outbox (id int, payload jsonb)`, "jsonb", `'{"a": 1}'::jsonb`, 3, PayloadSample{Rows: 3, Whole: true, LargestBytes: 8}},
		{`CREATE TABLE outbox (id int, payload bytea)`, "bytea", `'\x00ff'::bytea`, 2, PayloadSample{Rows: 2, Whole: true, LargestBytes: 2}},
		{`CREATE TABLE outbox (id int, payload text)`, "text", `repeat('é', 500000)`, 1, PayloadSample{Rows: 1, Whole: true, LargestBytes: 1000000}},
		{`CREATE TABLE outbox (id int, payload text)`, "text", `NULL::text`, 1, PayloadSample{Rows: 1, Whole: true}},
		{`CREATE TABLE outbox (id int, payload text)`, "text", `'x'`, 0, PayloadSample{Whole: true}},
		{`CREATE TABLE outbox (id int, payload text) PARTITION BY RANGE (id); CREATE TABLE leaf PARTITION OF outbox DEFAULT`, "text", `'abc'`, 4, PayloadSample{Rows: 4, Whole: true, LargestBytes: 3}},
	} {
		b.exec(`DROP TABLE IF EXISTS outbox`, c.ddl)
		if _, err := b.conn.Exec(b.ctx(), `INSERT INTO outbox SELECT n, `+c.value+` FROM generate_series(1, $1::int) n`, c.rows); err != nil {
			t.Fatal(err)
		}
		got, err := samplePayloads(b.ctx(), b.conn, b.cfg.Table, c.payloadType)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, *got); d != "" {
			t.Errorf("%s: %s", c.ddl, d)
		}
	}
	b.exec(`DROP TABLE outbox`, `CREATE TABLE outbox (id int, payload text) WITH (fillfactor = 10)`,
		`INSERT INTO outbox SELECT n, repeat('x', 500) FROM generate_series(1, 5000) n`)
	if got, err := samplePayloads(b.ctx(), b.conn, b.cfg.Table, "text"); err != nil || got.Whole || got.Rows == 0 || got.Rows > 2500 || got.LargestBytes != 500 {
		t.Errorf("of a large table: %+v, %v", got, err)
	}
}
