package slot

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-1cfd9858/relay/outbox"
)

// Level says how a check came out.
type Level string

// The levels.
const (
	LevelOK      Level = "ok"
	LevelWarn    Level = "warn"    // the relay works; somebody should look
	LevelFail    Level = "fail"    // the relay must not or cannot deliver
	LevelUnknown Level = "unknown" // it could not be looked at; the text says why
)

// Check is one precondition and how it came out.
type Check struct {
	Name  string // what was looked at; stable
	Level Level
	Code  Code   // why it is not ok; empty if it is, or if it is not known
	Text  string // the evidence, or what is wrong
	Fix   string // the line of SQL or the command that mends it; empty if no line does
}

// Examination is everything that doctor asks PostgreSQL. It holds State, so what a relay refuses is judged by the same code.
type Examination struct {
	State

	Pooled    bool   // the server process is not the one that the connection was told of: something stands between
	Superuser bool   // of the connection's role
	Encoding  string // of the database
	Senders   int    // walsenders at work, for any purpose
	// Standbys counts what looks like a standby server: physical slots and, without a slot, walsenders.
	Standbys int
	// IdleSlotTimeoutSeconds is the setting idle_replication_slot_timeout; nil before 18.
	IdleSlotTimeoutSeconds *int64
	// StandbySlots is the setting synchronized_standby_slots; nil before 17.
	StandbySlots *[]StandbySlot

	Rights *Rights // on the table; nil if there is none
	IDKey  bool    // a unique index keeps an id from being used twice (of a partitioned table: one that id is part of)

	ReplicationTried bool  // false if the role may not, or on a standby
	Replication      error // of a replication connection; nil if it works
	// ReplicationSystemID is the system identifier that the replication connection met; empty if it was not tried.
	ReplicationSystemID string

	Payload    *PayloadSample // nil if it could not be read
	PayloadErr error
}

// StandbySlot is a slot that logical replication waits for.
type StandbySlot struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"` // a physical slot of that name exists and a standby holds it
}

// Rights are what the role may do with the table.
type Rights struct {
	Owner   string `json:"owner"`   // of the table
	Schema  bool   `json:"schema"`  // USAGE on the table's schema
	Select  bool   `json:"select"`  // SELECT on the table
	Publish bool   `json:"publish"` // the table's ownership and CREATE on the database: slot create can make the publication
}

// examineSQL answers what Inspect does not need, in one row.
const examineSQL = `
WITH t AS MATERIALIZED (
	SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = $1::name AND c.relname = $2::name)
SELECT jsonb_build_object(
	'backend', pg_backend_pid(),
	'superuser', (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
	'encoding', current_setting('server_encoding'),
	'senders', (SELECT count(*) FROM pg_stat_replication),
	'standbys', (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical')
		+ (SELECT count(*) FROM pg_stat_replication r JOIN pg_stat_activity a USING (pid)
			WHERE a.datid IS NULL AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE active_pid IS NOT NULL)),
	'idle_seconds', (SELECT setting::bigint * CASE unit WHEN 'min' THEN 60 ELSE 1 END
		FROM pg_settings WHERE name = 'idle_replication_slot_timeout'),
	'standby_slots', (SELECT CASE WHEN setting = '' THEN '[]'::jsonb ELSE (
			SELECT jsonb_agg(jsonb_build_object('name', n.name, 'ready', coalesce(s.slot_type = 'physical' AND s.active, false)))
			FROM (SELECT btrim(part, ' "') AS name FROM unnest(string_to_array(setting, ',')) part) n
			LEFT JOIN pg_replication_slots s ON s.slot_name = n.name::name) END
		FROM pg_settings WHERE name = 'synchronized_standby_slots'),
	'rights', (SELECT jsonb_build_object(
			'owner', pg_get_userbyid(t.relowner),
			'schema', has_schema_privilege(t.relnamespace, 'USAGE'), 'select', has_table_privilege(t.oid, 'SELECT'),
			'publish', pg_has_role(t.relowner, 'USAGE') AND has_database_privilege(current_database(), 'CREATE'))
		FROM t),
	'id_key', EXISTS (SELECT FROM t JOIN pg_index i ON i.indrelid = t.oid JOIN pg_attribute a ON a.attrelid = t.oid
		WHERE a.attname = 'id' AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
		AND (i.indnkeyatts = 1 OR t.relkind = 'p' OR t.relispartition) AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])))`

type examineDoc struct {
	Backend      uint32         `json:"backend"`
	Superuser    bool           `json:"superuser"`
	Encoding     string         `json:"encoding"`
	Senders      int            `json:"senders"`
	Standbys     int            `json:"standbys"`
	IdleSeconds  *int64         `json:"idle_seconds"`
	StandbySlots *[]StandbySlot `json:"standby_slots"`
	Rights       *Rights        `json:"rights"`
	IDKey        bool           `json:"id_key"`
}

// Examine looks at every precondition in PostgreSQL and changes nothing. Besides the connection it opens a replication
// connection for a moment, as base says but for what makes it one; no slot is touched. It reads a bounded sample of the
// table's payloads.
func Examine(ctx context.Context, conn *pgx.Conn, base *pgconn.Config, cfg Config) (Examination, error) {
	state, err := Inspect(ctx, conn, cfg)
	if err != nil {
		return Examination{}, err
	}
	e := Examination{State: state}
	if state.InRecovery {
		return e, nil // nothing else is judged on a standby
	}
	if err := e.ask(ctx, conn, cfg); err != nil {
		return e, err
	}
	if state.CanReplicate {
		e.ReplicationTried = true
		e.ReplicationSystemID, e.Replication = tryReplication(ctx, base)
	}
	if t := state.Table; t.holdsRows() && t.Column(outbox.ColumnPayload) != nil && e.Rights != nil && e.Rights.Schema && e.Rights.Select {
		e.Payload, e.PayloadErr = samplePayloads(ctx, conn, cfg.Table, t.Column(outbox.ColumnPayload).Type)
	}
	return e, nil
}

func (e *Examination) ask(ctx context.Context, conn *pgx.Conn, cfg Config) error {
	var doc []byte
	err := conn.QueryRow(ctx, examineSQL, pgx.QueryExecModeExec, cfg.Table.Schema, cfg.Table.Name).Scan(&doc)
	if err != nil {
		return fmt.Errorf("examine the server: %w", err)
	}
	var d examineDoc
	if err := json.Unmarshal(doc, &d); err != nil {
		return fmt.Errorf("examine the server: %w", err)
	}
	e.Pooled = d.Backend != conn.PgConn().PID()
	e.Superuser, e.Encoding, e.Senders, e.Standbys = d.Superuser, d.Encoding, d.Senders, d.Standbys
	e.IdleSlotTimeoutSeconds, e.StandbySlots = d.IdleSeconds, d.StandbySlots
	e.Rights, e.IDKey = d.Rights, d.IDKey
	return nil
}

// holdsRows says that the relation is a table, and no view or the like.
func (t *Table) holdsRows() bool { return t != nil && (t.Kind == "r" || t.Kind == "p") }

// tryReplication opens a replication connection, asks it who the server is, and closes it.
func tryReplication(ctx context.Context, base *pgconn.Config) (systemID string, err error) {
	cfg := base.Copy()
	cfg.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	system, err := pglogrepl.IdentifySystem(ctx, conn)
	return system.SystemID, err
}
