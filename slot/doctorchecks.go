package slot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// What the relay is tested with.
const (
	minVersion = 140000
	maxVersion = 189999
)

// Checks judges the examination, in the order in which a person would mend things. subjectColumns are the columns that the
// relay's subject template names. It is pure.
func (e Examination) Checks(cfg Config, subjectColumns []string) []Check {
	c := checker{Examination: e, cfg: cfg, problems: e.Problems(cfg)}
	c.server()
	if e.InRecovery {
		return c.done
	}
	c.role()
	c.replication()
	c.settings()
	c.table(subjectColumns)
	c.publication()
	c.slot()
	for _, p := range c.problems { // what no check above has asked for
		c.problem(p.Kind.name(), p)
	}
	return c.done
}

// checker collects checks. A problem of the state is taken by the check that it belongs to.
type checker struct {
	Examination
	cfg      Config
	problems []Problem
	done     []Check
}

func (c *checker) ok(name, format string, args ...any) {
	c.done = append(c.done, Check{Name: name, Level: LevelOK, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) unknown(name, format string, args ...any) {
	c.done = append(c.done, Check{Name: name, Level: LevelUnknown, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) bad(level Level, name string, code Code, fix, format string, args ...any) {
	c.done = append(c.done, Check{Name: name, Level: level, Code: code, Text: fmt.Sprintf(format, args...), Fix: fix})
}

func (c *checker) problem(name string, p Problem) {
	level := LevelFail
	if p.Severity == Warning {
		level = LevelWarn
	}
	text := strings.Replace(p.Text, " on "+c.Where, "", 1) // said at the top
	c.done = append(c.done, Check{Name: name, Level: level, Code: p.Code, Text: text, Fix: p.Fix})
}

// take reports the problems with these codes under a name, and whether there were any.
func (c *checker) take(name string, codes ...Code) bool {
	left := make([]Problem, 0, len(c.problems))
	for _, p := range c.problems {
		if slices.Contains(codes, p.Code) {
			c.problem(name, p)
		} else {
			left = append(left, p)
		}
	}
	found := len(left) < len(c.problems)
	c.problems = left
	return found
}

// drop forgets problems that only follow from another one.
func (c *checker) drop(codes ...Code) {
	c.problems = slices.DeleteFunc(c.problems, func(p Problem) bool { return slices.Contains(codes, p.Code) })
}

func (c *checker) server() {
	version := fmt.Sprintf("PostgreSQL %d.%d", c.ServerVersion/10000, c.ServerVersion%10000)
	switch {
	case c.ServerVersion < minVersion:
		c.bad(LevelFail, "version", CodeVersion, "", "%s is too old: the relay needs 14 or later", version)
	case c.ServerVersion > maxVersion:
		c.bad(LevelWarn, "version", CodeVersion, "", "%s is newer than the relay is tested with (14 to 18)", version)
	default:
		c.ok("version", "%s", version)
	}
	if c.take("primary", CodeInRecovery) {
		return
	}
	c.ok("primary", "not in recovery")
	if !c.take("wal_level", CodeWALLevel) {
		c.ok("wal_level", "%s", c.WALLevel)
	}
	if c.Encoding == "SQL_ASCII" {
		c.bad(LevelWarn, "encoding", CodeEncoding, "", "the database is SQL_ASCII: an id or topic with bytes that are not UTF-8 halts the relay")
	} else {
		c.ok("encoding", "%s", c.Encoding)
	}
	if c.Slot == nil && c.Slots >= c.MaxSlots {
		c.bad(LevelFail, "replication_slots", CodeSlotsExhausted,
			fmt.Sprintf("ALTER SYSTEM SET max_replication_slots = %d;  -- then restart; or drop an unused one: relay slot list", c.MaxSlots+5),
			"all %d are taken (max_replication_slots): there is none for the relay", c.MaxSlots)
	} else {
		c.ok("replication_slots", "%d of %d are taken", c.Slots, c.MaxSlots)
	}
}

func (c *checker) role() {
	role := pgx.Identifier{c.Role}.Sanitize()
	switch {
	case !c.CanReplicate:
		c.bad(LevelFail, "role", CodeRoleReplication, "ALTER ROLE "+role+" REPLICATION;",
			"%s may connect but not replicate; it needs no other right, and never superuser", c.Role)
	case c.Superuser:
		c.bad(LevelWarn, "role", CodeRoleSuperuser, c.leastPrivilege(), "%s is a superuser: REPLICATION is all that a relay needs", c.Role)
	default:
		c.ok("role", "%s may replicate and is no superuser", c.Role)
	}
	if c.Rights == nil {
		return
	}
	if c.Rights.Schema && c.Rights.Select {
		c.ok("table_rights", "SELECT on %s", c.cfg.Table)
	} else {
		c.bad(LevelWarn, "table_rights", CodeTableNotReadable, c.grantSelect(role),
			"%s may not read %s: streaming does not need it, the count of earlier rows and the payload check here do", c.Role, c.cfg.Table)
	}
	if c.Publication == nil && !c.Rights.Publish {
		c.bad(LevelWarn, "publication_rights", CodeRoleCannotPublish, c.createPublication()+"  -- as "+c.Rights.Owner,
			"%s cannot make the publication: that takes the table's owner, with CREATE on the database", c.Role)
	}
}

func (c *checker) grantSelect(role string) string {
	lines := "GRANT SELECT ON " + c.cfg.Table.SQL() + " TO " + role + ";"
	if !c.Rights.Schema {
		lines = "GRANT USAGE ON SCHEMA " + pgx.Identifier{c.cfg.Table.Schema}.Sanitize() + " TO " + role + ";\n" + lines
	}
	return lines
}

func (c *checker) createPublication() string {
	return "CREATE PUBLICATION " + pgx.Identifier{c.cfg.Publication}.Sanitize() + " FOR TABLE " + c.cfg.Table.SQL() +
		" WITH (publish = 'insert', publish_via_partition_root = true);"
}

// leastPrivilege is all that the role of a relay needs, once the publication is there.
func (c *checker) leastPrivilege() string {
	return strings.Join([]string{
		"CREATE ROLE relay LOGIN REPLICATION PASSWORD '...';",
		"GRANT CONNECT ON DATABASE " + pgx.Identifier{c.Database}.Sanitize() + " TO relay;",
		"GRANT USAGE ON SCHEMA " + pgx.Identifier{c.cfg.Table.Schema}.Sanitize() + " TO relay;",
		"GRANT SELECT ON " + c.cfg.Table.SQL() + " TO relay;",
	}, "\n")
}

// replication judges the connection that a relay streams over.
func (c *checker) replication() {
	const direct = "give --database-url the server's own host and port, not the pooler's"
	switch err := c.Replication; {
	case !c.ReplicationTried:
		c.unknown("replication_connection", "not tried: %s may not replicate", c.Role)
	case sqlState(err) == "53300":
		c.bad(LevelFail, "replication_connection", CodeSendersExhausted,
			fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d;  -- then restart", c.MaxWALSenders+5),
			"no walsender is free (%d of max_wal_senders = %d are at work): %s", c.Senders, c.MaxWALSenders, Reason(err))
	case sqlState(err) == "08P01":
		c.bad(LevelFail, "replication_connection", CodePooled, direct, "a pooler stands between and does not speak replication: %s", Reason(err))
	case err != nil:
		_, advice := Classify(err)
		c.bad(LevelFail, "replication_connection", CodeReplicationRefused, advice,
			"normal connections work, replication connections do not: %s", Reason(err))
	case c.SystemID != "" && c.SystemID != c.ReplicationSystemID:
		c.bad(LevelFail, "replication_connection", CodeReplicationElsewhere, "give --database-url one host, or target_session_attrs=read-write",
			"it met another cluster (%s) than the normal connection (%s)", c.ReplicationSystemID, c.SystemID)
	case c.Pooled:
		c.bad(LevelWarn, "replication_connection", CodePooled, direct, "it works, but something between relay and server answers for the server")
	default:
		c.ok("replication_connection", "direct; %d of %d walsenders at work", c.Senders, c.MaxWALSenders)
	}
}

// settings judges what can take the slot away, or the disk.
func (c *checker) settings() {
	if c.MaxSlotWALKeepBytes == nil {
		c.bad(LevelWarn, "wal_keep", CodeWALKeepUnlimited, "ALTER SYSTEM SET max_slot_wal_keep_size = '20GB'; SELECT pg_reload_conf();",
			"max_slot_wal_keep_size has no limit: while no relay reads, WAL fills the disk, and then PostgreSQL stops. "+
				"With a limit the slot is lost instead: choose what the disk can spare")
	} else {
		c.ok("wal_keep", "max_slot_wal_keep_size is %d MB", *c.MaxSlotWALKeepBytes>>20)
	}
	switch idle := c.IdleSlotTimeoutSeconds; {
	case idle == nil:
	case *idle > 0:
		c.bad(LevelWarn, "idle_slot_timeout", CodeIdleSlotTimeout, "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
			"the slot is lost when no relay runs for idle_replication_slot_timeout = %d s", *idle)
	default:
		c.ok("idle_slot_timeout", "idle_replication_slot_timeout is off")
	}
}

// name is what a problem's own check would be called.
func (k Kind) name() string {
	switch k {
	case KindSlot:
		return "slot"
	case KindPublication:
		return "publication"
	case KindTable:
		return "table"
	default:
		return "server"
	}
}
