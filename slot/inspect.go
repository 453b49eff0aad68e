package slot

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// inspectSQL answers everything in one row: one JSON document. Rows of catalogue views are taken whole, so that columns
// which a version does not have are absent instead of an error. The end of WAL stands first: it must be read before the
// slot, or a busy slot would look further behind than it is.
const inspectSQL = `
WITH s AS MATERIALIZED (SELECT * FROM pg_replication_slots WHERE slot_name = $1::name),
p AS MATERIALIZED (SELECT xmin, * FROM pg_publication WHERE pubname = $2::name),
t AS MATERIALIZED (
	SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = $3::name AND c.relname = $4::name),
listed AS MATERIALIZED (
	SELECT c.oid AS relid, format('%I.%I', n.nspname, c.relname) AS name, to_jsonb(v) AS doc
	FROM pg_publication_tables v
	JOIN pg_namespace n ON n.nspname = v.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = v.tablename
	WHERE v.pubname = $2::name),
parts AS MATERIALIZED (SELECT oid::oid AS relid FROM t UNION SELECT pt.relid FROM t, pg_partition_tree(t.oid) pt),
parents AS MATERIALIZED (SELECT a.relid::oid FROM t, pg_partition_ancestors(t.oid) a WHERE a.relid <> t.oid)
SELECT jsonb_build_object(
	'flush_lsn', CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn())
		ELSE pg_current_wal_flush_lsn() END,
	'at', clock_timestamp(),
	'version', current_setting('server_version_num')::int,
	'in_recovery', pg_is_in_recovery(),
	'wal_level', current_setting('wal_level'),
	'database', current_database(),
	'role', current_user,
	'can_replicate', (SELECT r.rolreplication OR r.rolsuper FROM pg_roles r WHERE r.rolname = current_user)
		OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'rds_replication' AND pg_has_role(current_user, r.oid, 'MEMBER')),
	'max_slot_wal_keep_mb', (SELECT setting::bigint FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
	'slots', (SELECT count(*) FROM pg_replication_slots),
	'max_slots', current_setting('max_replication_slots')::int,
	'max_wal_senders', current_setting('max_wal_senders')::int,
	'may_read_system', has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE'),
	'slot', (SELECT to_jsonb(s) FROM s),
	'holder', (SELECT jsonb_build_object('pid', s.active_pid, 'application_name', a.application_name,
			'address', CASE WHEN a.client_addr IS NOT NULL THEN host(a.client_addr)
				WHEN a.backend_start IS NOT NULL THEN 'local' END,
			'since', a.backend_start, 'state', r.state)
		FROM s JOIN pg_stat_activity a ON a.pid = s.active_pid LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid LIMIT 1),
	'publication', (SELECT to_jsonb(p) || jsonb_build_object(
			'oid', p.oid::bigint,
			'older_than_slot', greatest(age(p.xmin), (SELECT max(age(pr.xmin)) FROM pg_publication_rel pr WHERE pr.prpubid = p.oid))
				> (SELECT age(s.catalog_xmin) FROM s),
			'row', (SELECT l.doc FROM listed l JOIN t ON t.oid = l.relid LIMIT 1),
			'member', EXISTS (SELECT FROM listed WHERE relid IN (SELECT relid FROM parts UNION ALL SELECT relid FROM parents))
				OR EXISTS (SELECT FROM pg_publication_rel pr JOIN t ON t.oid = pr.prrelid WHERE pr.prpubid = p.oid),
			'via_parent', (SELECT l.name FROM listed l JOIN parents USING (relid) LIMIT 1),
			'others', (SELECT count(*) FROM listed WHERE relid NOT IN (SELECT relid FROM parts UNION ALL SELECT relid FROM parents)))
		FROM p),
	'table', (SELECT jsonb_build_object(
			'oid', t.oid::bigint, 'kind', t.relkind, 'unlogged', t.relpersistence <> 'p', 'is_partition', t.relispartition,
			'primary_key', EXISTS (SELECT FROM pg_index i WHERE i.indrelid = t.oid AND i.indisprimary),
			'has_identity', CASE t.relreplident WHEN 'f' THEN true WHEN 'n' THEN false
				WHEN 'i' THEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = t.oid AND i.indisreplident)
				ELSE EXISTS (SELECT FROM pg_index i WHERE i.indrelid = t.oid AND i.indisprimary) END,
			'columns', (SELECT jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
					'not_null', a.attnotnull, 'generated', a.attgenerated <> '', 'identity', a.attidentity = 'a') ORDER BY a.attnum)
				FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped))
		FROM t))`

const systemSQL = `SELECT system_identifier::text FROM pg_catalog.pg_control_system()`

// Inspect reads the state of the slot, the publication and the table of cfg, and of the server they are on. It changes
// nothing. It works on primaries and standbys of version 14 and later, in at most two round trips, over a normal
// connection (also through a pooler) whose role needs no right but to connect.
func Inspect(ctx context.Context, conn *pgx.Conn, cfg Config) (State, error) {
	if err := cfg.Validate(); err != nil {
		return State{}, err
	}
	var doc []byte
	err := conn.QueryRow(ctx, inspectSQL, pgx.QueryExecModeExec,
		cfg.Slot, cfg.Publication, cfg.Table.Schema, cfg.Table.Name).Scan(&doc)
	if err != nil {
		return State{}, fmt.Errorf("inspect slot %q: %w", cfg.Slot, err)
	}
	var d stateDoc
	if err := json.Unmarshal(doc, &d); err != nil {
		return State{}, fmt.Errorf("inspect slot %q: %w", cfg.Slot, err)
	}
	state := d.state()
	state.Where = where(conn, state.Database)
	if d.MayReadSystem {
		if err := conn.QueryRow(ctx, systemSQL, pgx.QueryExecModeExec).Scan(&state.SystemID); err != nil {
			return State{}, fmt.Errorf("read the system identifier: %w", err)
		}
	}
	return state, nil
}

// where names the server in the operator's words if the configuration leaves no doubt which of its hosts it is.
func where(conn *pgx.Conn, database string) string {
	c := conn.Config()
	at := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	for _, f := range c.Fallbacks {
		if f.Host != c.Host || f.Port != c.Port {
			at = conn.PgConn().Conn().RemoteAddr().String()
			break
		}
	}
	return at + "/" + database
}

type stateDoc struct {
	FlushLSN      *jsonLSN        `json:"flush_lsn"`
	At            time.Time       `json:"at"`
	Version       int             `json:"version"`
	InRecovery    bool            `json:"in_recovery"`
	WALLevel      string          `json:"wal_level"`
	Database      string          `json:"database"`
	Role          string          `json:"role"`
	CanReplicate  bool            `json:"can_replicate"`
	KeepMB        *int64          `json:"max_slot_wal_keep_mb"`
	Slots         int             `json:"slots"`
	MaxSlots      int             `json:"max_slots"`
	MaxWALSenders int             `json:"max_wal_senders"`
	MayReadSystem bool            `json:"may_read_system"`
	Slot          *slotDoc        `json:"slot"`
	Holder        *holderDoc      `json:"holder"`
	Publication   *publicationDoc `json:"publication"`
	Table         *tableDoc       `json:"table"`
}

func (d stateDoc) state() State {
	s := State{
		At: d.At, ServerVersion: d.Version, InRecovery: d.InRecovery, WALLevel: d.WALLevel, Database: d.Database, Role: d.Role,
		CanReplicate: d.CanReplicate, FlushLSN: d.FlushLSN.lsn(), Slots: d.Slots, MaxSlots: d.MaxSlots, MaxWALSenders: d.MaxWALSenders,
		Publication: d.Publication.publication(), Table: d.Table.table(),
	}
	if d.KeepMB != nil && *d.KeepMB >= 0 {
		bytes := *d.KeepMB << 20
		s.MaxSlotWALKeepBytes = &bytes
	}
	if d.Slot != nil {
		slot := d.Slot.slot(s.FlushLSN)
		slot.Holder = d.Holder.holder()
		s.Slot = &slot
	}
	return s
}

// jsonLSN reads an LSN in PostgreSQL's own form.
type jsonLSN pglogrepl.LSN

func (l *jsonLSN) UnmarshalText(text []byte) error {
	lsn, err := pglogrepl.ParseLSN(string(text))
	*l = jsonLSN(lsn)
	return err
}

func (l *jsonLSN) lsn() *pglogrepl.LSN { return (*pglogrepl.LSN)(l) }
