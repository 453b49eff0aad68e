package slot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-1cfd9858/relay/outbox"
)

// table judges the outbox table and its columns.
func (c *checker) table(subjectColumns []string) {
	c.take("table", CodeTableMissing, CodeTableUnfit)
	if !c.Table.holdsRows() {
		c.drop(CodeColumnMissing, CodeColumnGenerated, CodeTableNotPublished) // nothing else matters about it
		return
	}
	if !c.reported("table") {
		kind := "a table"
		if c.Table.Kind == "p" {
			kind = "a partitioned table"
		}
		c.ok("table", "%s is %s", c.cfg.Table, kind)
	}
	c.take("columns", CodeColumnMissing, CodeColumnGenerated)
	for _, name := range subjectColumns {
		if c.Table.Column(name) == nil && !slices.Contains(outbox.RequiredColumns(), name) {
			c.bad(LevelFail, "columns", CodeColumnMissing, "", "table %s has no column %s, which --subject names", c.cfg.Table, name)
		}
	}
	c.nullable()
	c.types()
	if !c.reported("columns") {
		c.ok("columns", "%s", c.listColumns())
	}
	c.id()
}

// reported says whether a check of that name is there already.
func (c *checker) reported(name string) bool {
	return slices.ContainsFunc(c.done, func(check Check) bool { return check.Name == name })
}

func (c *checker) nullable() {
	for _, name := range []string{outbox.ColumnID, outbox.ColumnTopic} {
		if column := c.Table.Column(name); column != nil && !column.NotNull {
			c.bad(LevelWarn, "columns", CodeColumnNullable, "ALTER TABLE "+c.cfg.Table.SQL()+" ALTER COLUMN "+name+" SET NOT NULL;",
				"%s may be NULL: a row without it halts the relay", name)
		}
	}
}

func (c *checker) types() {
	if column := c.Table.Column(outbox.ColumnPayload); column != nil && !typeIn(column, "jsonb", "json", "text", "bytea", "character varying") {
		c.bad(LevelWarn, "columns", CodeColumnType, "", "payload is %s: consumers get the text that PostgreSQL makes of it", column.Type)
	}
	if column := c.Table.Column(outbox.ColumnHeaders); column != nil && !typeIn(column, "jsonb", "json", "text", "character varying") {
		c.bad(LevelFail, "columns", CodeColumnType, "ALTER TABLE "+c.cfg.Table.SQL()+" ALTER COLUMN headers TYPE jsonb USING to_jsonb(headers);",
			"headers is %s, not a JSON object: the first row that has some halts the relay", column.Type)
	}
}

func typeIn(column *Column, types ...string) bool {
	name, _, _ := strings.Cut(column.Type, "(")
	return slices.Contains(types, name)
}

func (c *checker) listColumns() string {
	var parts []string
	for _, name := range slices.Concat(outbox.RequiredColumns(), outbox.OptionalColumns()) {
		if column := c.Table.Column(name); column != nil {
			parts = append(parts, name+" "+column.Type)
		}
	}
	return strings.Join(parts, ", ")
}

// id judges what keeps the promise that an id is used once.
func (c *checker) id() {
	column := c.Table.Column(outbox.ColumnID)
	if column == nil {
		return
	}
	if !typeIn(column, "uuid", "text", "character varying") {
		c.bad(LevelWarn, "id", CodeIDNotUUID, "", "id is %s: numbers that start again, after TRUNCATE ... RESTART IDENTITY or a restore say, "+
			"are taken for events that were stored already", column.Type)
	}
	if !c.IDKey {
		c.bad(LevelWarn, "id", CodeIDNotUnique, "CREATE UNIQUE INDEX CONCURRENTLY ON "+c.cfg.Table.SQL()+" (id);",
			"no unique index on id: the second event of an id is taken for the first one and not stored")
	}
	if !c.reported("id") {
		c.ok("id", "%s, unique", column.Type)
	}
}

func (c *checker) publication() {
	c.take("publication", CodePublicationMissing, CodePublicationMaybeYounger)
	p := c.Publication
	if p == nil {
		return
	}
	if !c.reported("publication") {
		age := ""
		if c.Slot != nil {
			age = ", older than the slot"
		}
		c.ok("publication", "%s exists%s", c.cfg.Publication, age)
	}
	if !c.take("publication_operations", CodePublicationWithoutInsert, CodePublicationMoreOperations) {
		c.ok("publication_operations", "INSERT only")
	}
	if !c.take("publication_width", CodePublicationWider) {
		c.ok("publication_width", "no other table")
	}
	if !c.Table.holdsRows() {
		return
	}
	if c.take("publication_table", CodeTableNotPublished, CodePartitionWithoutRoot, CodePartitionUnderParent, CodeRowFilter,
		CodeColumnNotPublished) {
		return
	}
	via := ""
	if c.Table.Kind == "p" {
		via = ", under the root's name"
	}
	c.ok("publication_table", "all rows and needed columns of %s%s", c.cfg.Table, via)
}

func (c *checker) slot() {
	s := c.Slot
	if c.take("slot", CodeSlotMissing, CodeSlotPhysical, CodeSlotWrongPlugin, CodeSlotWrongDatabase, CodeSlotLost) || s == nil {
		return // nothing else matters about it
	}
	if !c.take("slot", CodeSlotTwoPhase, CodeSlotTemporary, CodeSlotUnfinished, CodeSlotUnreserved) {
		c.ok("slot", "%s, %s; %s", s.Name, s.WALStatus, holderText(s))
	}
	failover := s.Failover != nil && *s.Failover
	switch {
	case c.Standbys == 0 && !failover:
		c.ok("slot_failover", "no standby to fail over to")
	case failover:
		c.ok("slot_failover", "the slot is copied to standbys")
	case c.ServerVersion < 170000:
		c.bad(LevelWarn, "slot_failover", CodeSlotFailover, "", "the server has standbys, and before 17 a slot is not copied to them: "+
			"after a failover it is missing, and events must be inserted again")
	default:
		c.bad(LevelWarn, "slot_failover", CodeSlotFailover,
			fmt.Sprintf(`psql "dbname=%s replication=database" -c "ALTER_REPLICATION_SLOT %s (FAILOVER true)"`, c.Database, s.Name),
			"the server has standbys, and the slot is not copied to them: after a failover it is missing (stop the relay to change it)")
	}
	if failover && c.StandbySlots != nil {
		c.standbySlots(*c.StandbySlots)
	}
}

func (c *checker) standbySlots(slots []StandbySlot) {
	const set = "ALTER SYSTEM SET synchronized_standby_slots = 'THE_STANDBYS_SLOT'; SELECT pg_reload_conf();"
	if len(slots) == 0 {
		c.bad(LevelWarn, "standby_slots", CodeStandbySlotsUnset, set,
			"synchronized_standby_slots is empty: after a failover the stream can hold events whose transaction is gone")
		return
	}
	var names, away []string
	for _, s := range slots {
		names = append(names, s.Name)
		if !s.Ready {
			away = append(away, s.Name)
		}
	}
	if len(away) > 0 {
		c.bad(LevelFail, "standby_slots", CodeStandbySlotsBlocking, set,
			"synchronized_standby_slots names %s, which no standby holds: PostgreSQL sends the relay nothing until one does", strings.Join(away, ", "))
		return
	}
	c.ok("standby_slots", "waits for %s", strings.Join(names, ", "))
}

func holderText(s *Slot) string {
	switch {
	case s.Holder != nil && s.Holder.Address != "":
		return fmt.Sprintf("held by %s, pid %d on %s", s.Holder.ApplicationName, s.Holder.PID, s.Holder.Address)
	case s.ActivePID != nil:
		return fmt.Sprintf("held by pid %d", *s.ActivePID)
	}
	return "held by nobody"
}
