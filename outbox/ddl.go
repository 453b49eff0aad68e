package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DefaultPayloadType is the type of the payload column where [DDLOptions] names none.
const DefaultPayloadType = "jsonb"

// ErrPayloadType is the error of a payload type that an outbox cannot have.
var ErrPayloadType = errors.New("want jsonb, json, text or bytea")

// ErrNotOutbox is the error of a relation that has the outbox's name but cannot be one.
var ErrNotOutbox = errors.New("not an outbox table")

// DDLOptions says how a new outbox table looks. The zero value is the documented default.
type DDLOptions struct {
	PayloadType string // jsonb, json, text or bytea; empty means DefaultPayloadType
	// PartitionByDay makes a partition for each day of created_at, so that old events go with their partition. The key is
	// (id, created_at) then: that an id is used once is the writer's duty alone. The partitions are made by [PartitionDDL].
	PartitionByDay bool
}

// PayloadTypes returns the types that the payload column of a new outbox may have.
func PayloadTypes() []string { return []string{"jsonb", "json", "text", "bytea"} }

// DDL returns the statement that creates an outbox table named t, with a comment on each column. An error wraps
// [ErrPayloadType] and names the value.
func DDL(t Table, o DDLOptions) (string, error) {
	payload := o.PayloadType
	if payload == "" {
		payload = DefaultPayloadType
	}
	if !slices.Contains(PayloadTypes(), payload) {
		return "", fmt.Errorf("payload type %q: %w", payload, ErrPayloadType)
	}
	inline, key, by := "PRIMARY KEY, ", "", ""
	if o.PartitionByDay {
		inline, by = "NOT NULL,    ", " PARTITION BY RANGE ("+ColumnCreatedAt+")"
		key = "  PRIMARY KEY (" + ColumnID + ", " + ColumnCreatedAt + ")\n"
	}
	comma := map[bool]string{true: ",", false: " "}[o.PartitionByDay]
	return fmt.Sprintf(`CREATE TABLE %s (
  %-12s uuid        %-25s -- event id: one id per event, never used twice
  %-12s text        NOT NULL,                 -- what happened, 'order.created'; part of the subject
  %-12s %-11s NOT NULL,                 -- the message's body, sent as it is stored
  %-12s text,                                 -- scope of ordering, e.g. the order's id
  %-12s bigint,                               -- number inside the aggregate, if the application counts
  %-12s jsonb,                                -- more message headers: an object of strings (or arrays of strings)
  %-12s timestamptz NOT NULL DEFAULT now()%s   -- when the application wrote it
%s)%s;
`, t.statementName(), ColumnID, inline, ColumnTopic, ColumnPayload, payload, ColumnAggregateID, ColumnSequence, ColumnHeaders,
		ColumnCreatedAt, comma, key, by), nil
}

// Create creates the outbox table t. A table of that name that has the needed columns is left as it is and reported as
// existed; one that has not, or a relation that is no table, is an error that wraps [ErrNotOutbox] and says what is wrong.
// The schema must exist.
func Create(ctx context.Context, conn *pgx.Conn, t Table, o DDLOptions) (existed bool, err error) {
	ddl, err := DDL(t, o)
	if err != nil {
		return false, err
	}
	if existed, err = existing(ctx, conn, t); existed || err != nil {
		return existed, err
	}
	_, err = conn.Exec(ctx, ddl)
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return false, nil
	case !errors.As(err, &pgErr):
		return false, fmt.Errorf("create table %s: %w", t, err)
	case pgErr.Code == "42P07" || pgErr.Code == "23505" || pgErr.Code == "42710":
		// Somebody else created it between the look and the statement: what counts is whether theirs fits.
		if existed, lookErr := existing(ctx, conn, t); existed || lookErr != nil {
			return existed, lookErr
		}
	case pgErr.Code == "3F000":
		return false, fmt.Errorf("create table %s: the schema does not exist, CREATE SCHEMA %s first: %w",
			t, pgx.Identifier{t.Schema}.Sanitize(), err)
	}
	return false, fmt.Errorf("create table %s: %w", t, err)
}

// existing looks for a relation named t and says whether it can be an outbox.
func existing(ctx context.Context, conn *pgx.Conn, t Table) (bool, error) {
	var kind string
	var columns []string
	err := conn.QueryRow(ctx, `
		SELECT c.relkind::text, ARRAY(
			SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2`, t.Schema, t.Name).Scan(&kind, &columns)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for table %s: %w", t, err)
	}
	if kind != "r" && kind != "p" {
		return false, fmt.Errorf("%s exists and is no table: %w", t, ErrNotOutbox)
	}
	missing := slices.DeleteFunc(RequiredColumns(), func(name string) bool { return slices.Contains(columns, name) })
	if len(missing) > 0 {
		return false, fmt.Errorf("%s exists without the needed columns %s: %w", t, strings.Join(missing, ", "), ErrNotOutbox)
	}
	return true, nil
}

// statementName is the shortest form of the name that is safe in a statement whatever the words: a reserved word needs no
// quotes after a dot, but does before one.
func (t Table) statementName() string {
	if t.Schema == "public" {
		return t.String()
	}
	return t.SQL()
}
