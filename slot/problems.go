package slot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/outbox"
)

// Problems judges the state: the broken things first, each group in the order server, slot, publication, table. It is
// pure. An empty answer means that a relay of cfg can stream.
func (s State) Problems(cfg Config) []Problem {
	j := judge{State: s, cfg: cfg}
	if s.InRecovery {
		j.add(CodeInRecovery, Broken, KindServer, "", "%s is a standby in recovery: connect to the primary", s.Where)
		return j.found
	}
	if s.WALLevel != "logical" {
		j.add(CodeWALLevel, Broken, KindServer, "ALTER SYSTEM SET wal_level = 'logical';  -- then restart the server",
			"wal_level is %s on %s: logical replication needs logical", s.WALLevel, s.Where)
	}
	j.slot()
	j.publication()
	j.table()
	slices.SortStableFunc(j.found, func(a, b Problem) int { return int(a.Severity) - int(b.Severity) })
	return j.found
}

// judge collects the problems of one state.
type judge struct {
	State
	cfg   Config
	found []Problem
}

func (j *judge) add(code Code, severity Severity, kind Kind, fix, format string, args ...any) {
	j.found = append(j.found, Problem{Code: code, Severity: severity, Kind: kind, Text: fmt.Sprintf(format, args...), Fix: fix})
}

func (j *judge) slot() {
	s, name := j.Slot, fmt.Sprintf("slot %q on %s", j.cfg.Slot, j.Where)
	add := func(code Code, severity Severity, fix, text string, args ...any) {
		j.add(code, severity, KindSlot, fix, "%s %s", name, fmt.Sprintf(text, args...))
	}
	const otherName = "relay slot create --slot NAME  # with a name of its own"
	switch {
	case s == nil:
		add(CodeSlotMissing, Broken, "relay slot create "+j.cfg.flags(), "does not exist (a running relay never makes one by itself)")
		return
	case s.Type != "logical":
		add(CodeSlotPhysical, Broken, otherName, "is a physical slot: it belongs to a standby or a backup")
		return
	case s.Plugin != "pgoutput":
		add(CodeSlotWrongPlugin, Broken, otherName, "is of plugin %s, not pgoutput: it belongs to another program", s.Plugin)
		return
	case s.Database != j.Database:
		add(CodeSlotWrongDatabase, Broken, otherName, "belongs to database %q", s.Database)
		return
	case s.Lost():
		reason := ""
		if s.InvalidationReason != nil {
			reason = " (" + *s.InvalidationReason + ")"
		}
		confirmed := "unknown"
		if s.ConfirmedFlushLSN != nil {
			confirmed = s.ConfirmedFlushLSN.String()
		}
		add(CodeSlotLost, Broken, j.cfg.recreate(), "is lost: PostgreSQL invalidated it%s; the last confirmed LSN is %s, "+
			"later events are only in the table and must be inserted again", reason, confirmed)
		return
	}
	if s.TwoPhase {
		add(CodeSlotTwoPhase, Broken, j.cfg.recreate(), "sends prepared transactions (two_phase), which the relay does not read")
	}
	if s.Temporary {
		add(CodeSlotTemporary, Broken, otherName, "is temporary: it ends with the session that made it")
	}
	if s.Unfinished() {
		add(CodeSlotUnfinished, Warning, "", "is being made: its maker waits for running transactions")
	}
	if s.WALStatus == "unreserved" {
		add(CodeSlotUnreserved, Warning, "ALTER SYSTEM SET max_slot_wal_keep_size = '20GB'; SELECT pg_reload_conf();",
			"holds more WAL than max_slot_wal_keep_size: it is lost at the next checkpoint unless it moves")
	}
}

func (j *judge) publication() {
	p := j.Publication
	quoted := pgx.Identifier{j.cfg.Publication}.Sanitize()
	alter, name := "ALTER PUBLICATION "+quoted, fmt.Sprintf("publication %s on %s", quoted, j.Where)
	add := func(code Code, severity Severity, fix, text string, args ...any) {
		j.add(code, severity, KindPublication, fix, "%s %s", name, fmt.Sprintf(text, args...))
	}
	if p == nil {
		if j.Slot == nil {
			add(CodePublicationMissing, Broken, "relay slot create "+j.cfg.flags(), "does not exist")
			return
		}
		add(CodePublicationMissing, Broken, j.cfg.recreate(), "does not exist although the slot does: making it now does not help, "+
			"what was written before it can never be read through this slot")
		return
	}
	if !p.Insert {
		add(CodePublicationWithoutInsert, Broken, alter+" SET (publish = 'insert');", "does not publish INSERT")
	}
	if more := p.moreOperations(); more != "" {
		consequence := "the relay ignores them"
		if j.Table != nil && !j.Table.HasIdentity && (p.Update || p.Delete) {
			consequence = fmt.Sprintf("they fail in the application, since %s has no replica identity", j.cfg.Table)
		}
		add(CodePublicationMoreOperations, Warning, alter+" SET (publish = 'insert');", "also publishes %s: %s", more, consequence)
	}
	if p.AllTables || p.OtherTables > 0 {
		what := fmt.Sprintf("%d other tables", p.OtherTables)
		if p.OtherTables == 1 {
			what = "another table"
		}
		if p.AllTables {
			what = "all tables"
		}
		add(CodePublicationWider, Warning, "", "publishes %s: the server sends their rows only for the relay to throw them away", what)
	}
	if j.Slot != nil && j.Slot.Type == "logical" && !p.OlderThanSlot && !j.Slot.Unfinished() && !j.Slot.Lost() {
		silent := "reading such WAL fails"
		if j.ServerVersion >= 180000 {
			silent = "this version skips such events without an error"
		}
		add(CodePublicationMaybeYounger, Warning, "", "is not proven to be older than the slot: if events were written "+
			"between slot and publication, the slot cannot deliver them (%s)", silent)
	}
	j.membership(add, alter)
}

func (j *judge) membership(add func(Code, Severity, string, string, ...any), alter string) {
	p, t := j.Publication, j.Table
	if t == nil {
		return // said by table
	}
	switch {
	case !p.Published && p.ViaParent != "":
		add(CodePartitionUnderParent, Broken, "relay run --table "+shellQuote(p.ViaParent),
			"publishes the rows of %s under the name of its parent %s", j.cfg.Table, p.ViaParent)
		return
	case !p.Published && t.Kind == "p" && p.Member:
		add(CodePartitionWithoutRoot, Broken, alter+" SET (publish_via_partition_root = true);",
			"publishes the rows of the partitioned table %s under the names of its partitions", j.cfg.Table)
		return
	case !p.Published:
		add(CodeTableNotPublished, Broken, alter+" ADD TABLE "+j.cfg.Table.SQL()+";  -- rows written before this must be inserted again",
			"does not hold the table %s as it is now (a table that was dropped and made again is another one): "+
				"its events are passed over", j.cfg.Table)
		return
	case p.RowFilter != nil:
		add(CodeRowFilter, Broken, j.publishWhole(alter), "hides rows of %s: WHERE %s", j.cfg.Table, *p.RowFilter)
	}
	for _, name := range slices.Concat(outbox.RequiredColumns(), outbox.OptionalColumns()) {
		c := t.Column(name)
		if c == nil || c.Generated || p.Columns == nil || slices.Contains(p.Columns, name) {
			continue
		}
		add(CodeColumnNotPublished, severityOf(name), j.publishWhole(alter),
			"leaves out the column %s of %s", name, j.cfg.Table)
	}
}

func (j *judge) table() {
	t, name := j.Table, fmt.Sprintf("table %s on %s", j.cfg.Table, j.Where)
	add := func(code Code, severity Severity, fix, text string, args ...any) {
		j.add(code, severity, KindTable, fix, "%s %s", name, fmt.Sprintf(text, args...))
	}
	switch {
	case t == nil:
		add(CodeTableMissing, Broken, "relay outbox create --table "+shellQuote(j.cfg.Table.String()), "does not exist")
		return
	case t.Kind != "r" && t.Kind != "p":
		add(CodeTableUnfit, Broken, "", "is no table (pg_class.relkind is %s)", t.Kind)
		return
	case t.Unlogged:
		add(CodeTableUnfit, Broken, "ALTER TABLE "+j.cfg.Table.SQL()+" SET LOGGED;", "is unlogged: its rows are never in the WAL")
	}
	for _, column := range slices.Concat(outbox.RequiredColumns(), outbox.OptionalColumns()) {
		c := t.Column(column)
		switch {
		case c == nil && severityOf(column) == Broken:
			add(CodeColumnMissing, Broken, "", "has no column %s", column)
		case c != nil && c.Generated && !j.publishesGenerated(column):
			add(CodeColumnGenerated, severityOf(column), "", "generates the column %s, so PostgreSQL does not publish it", column)
		}
	}
}

// publishesGenerated: before 18 no generated column is ever sent, though 15 lists them as published.
func (j *judge) publishesGenerated(column string) bool {
	return j.ServerVersion >= 180000 && j.Publication != nil && slices.Contains(j.Publication.Columns, column)
}

// publishWhole is the line that takes away row filter and column list, without a moment in which the table is not
// published, and without taking other tables out.
func (j *judge) publishWhole(alter string) string {
	table := " TABLE " + j.cfg.Table.SQL()
	if j.Publication.OtherTables == 0 {
		return alter + " SET" + table + ";"
	}
	return "BEGIN; " + alter + " DROP" + table + "; " + alter + " ADD" + table + "; COMMIT;"
}

// moreOperations lists what is published besides INSERT.
func (p *Publication) moreOperations() string {
	var ops []string
	for _, o := range []struct {
		name string
		on   bool
	}{{"UPDATE", p.Update}, {"DELETE", p.Delete}, {"TRUNCATE", p.Truncate}} {
		if o.on {
			ops = append(ops, o.name)
		}
	}
	return strings.Join(ops, ", ")
}

func severityOf(column string) Severity {
	if slices.Contains(outbox.RequiredColumns(), column) {
		return Broken
	}
	return Warning
}
