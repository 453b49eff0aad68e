package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Draft is an event that an application is about to write.
type Draft struct {
	ID          string // used once and never again; "": a new UUIDv7
	Topic       string // what happened: order.created
	Payload     []byte // the message's body
	AggregateID string // scope of ordering; "": none
	Sequence    int64  // number inside the aggregate, from 1; 0: none
	Headers     Carrier
}

// Carrier holds the headers of a draft by name. It is a propagation.TextMapCarrier of OpenTelemetry as it stands.
type Carrier map[string]string

// Get returns a header's value, "" if there is none.
func (c Carrier) Get(key string) string { return c[key] }

// Set sets a header's value.
func (c Carrier) Set(key, value string) { c[key] = value }

// Keys returns the names of the headers.
func (c Carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

// DefaultMessageBytes is NATS' own default for the size of a message, headers and payload.
const DefaultMessageBytes = 1 << 20

// Writer writes events into an outbox table, inside the caller's transaction. It checks them by the relay's own rules, so
// that an event which could never be stored is the application's error and not committed. The zero value is for a table
// that `relay outbox create` made without options, and a relay with its defaults. It is safe for concurrent use once its
// fields are set.
type Writer struct {
	Table       Table    // zero: public.outbox
	PayloadType string   // of the table's payload column; "": jsonb
	Template    Template // of the relay's subjects; zero: DefaultTemplate. May name topic, id, aggregate_id and sequence
	MaxBytes    int      // of a message, as NATS' max_payload and the stream's max_msg_size allow; 0: DefaultMessageBytes

	// Inject adds the context's own headers to each event, where the event has none of the name. Nil adds nothing. With
	// OpenTelemetry, for W3C trace context:
	//
	//	func(ctx context.Context, c outbox.Carrier) { otel.GetTextMapPropagator().Inject(ctx, c) }
	Inject func(ctx context.Context, c Carrier)
}

// Insert writes events with the zero Writer.
func Insert(ctx context.Context, tx pgx.Tx, events ...Draft) ([]string, error) {
	return (&Writer{}).Insert(ctx, tx, events...)
}

// InsertSQL writes events with the zero Writer.
func InsertSQL(ctx context.Context, tx *sql.Tx, events ...Draft) ([]string, error) {
	return (&Writer{}).InsertSQL(ctx, tx, events...)
}

// Insert writes events in their order, in one statement for each 5 000, and returns their ids. A *PoisonError names the
// first event that could never be stored; nothing was sent to the server then.
func (w *Writer) Insert(ctx context.Context, tx pgx.Tx, events ...Draft) ([]string, error) {
	return w.insert(ctx, events, func(statement string, args []any) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	})
}

// InsertSQL is Insert for database/sql, with any driver of PostgreSQL.
func (w *Writer) InsertSQL(ctx context.Context, tx *sql.Tx, events ...Draft) ([]string, error) {
	return w.insert(ctx, events, func(statement string, args []any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
}

// statementEvents bounds the events of a statement: the protocol numbers its parameters with 16 bits.
const statementEvents = 5000

func (w *Writer) insert(ctx context.Context, drafts []Draft, exec func(string, []any) error) ([]string, error) {
	settings, err := w.settings()
	if err != nil {
		return nil, err
	}
	rows := make([]written, len(drafts))
	ids := make([]string, len(drafts))
	for i, d := range drafts {
		if rows[i], err = settings.row(ctx, d); err != nil {
			return nil, fmt.Errorf("event %d of %d: %w", i+1, len(drafts), err)
		}
		ids[i] = rows[i].id
	}
	for part := range slices.Chunk(rows, statementEvents) {
		statement, args := settings.statement(part)
		if err := exec(statement, args); err != nil {
			return nil, fmt.Errorf("insert into %s: %w", settings.Table, err)
		}
	}
	return ids, nil
}

// settings returns the writer with its defaults filled in.
func (w *Writer) settings() (*Writer, error) {
	s := *w
	if s.Table == (Table{}) {
		s.Table = Table{Schema: "public", Name: "outbox"}
	}
	if s.PayloadType == "" {
		s.PayloadType = DefaultPayloadType
	}
	if !slices.Contains(PayloadTypes(), s.PayloadType) {
		return nil, fmt.Errorf("payload type %q: %w", s.PayloadType, ErrPayloadType)
	}
	if s.MaxBytes == 0 {
		s.MaxBytes = DefaultMessageBytes
	}
	if s.Template.text == "" {
		var err error
		if s.Template, err = ParseTemplate(DefaultTemplate); err != nil {
			return nil, err
		}
	}
	for _, c := range s.Template.Columns() {
		if _, known := (&written{}).column(c); !known {
			return nil, fmt.Errorf("subject template %q: column %q is not among those that a writer fills: %w", s.Template, c, ErrTemplate)
		}
	}
	return &s, nil
}

// written is a draft as it goes into the table.
type written struct {
	id, topic, aggregateID, sequence string
	headers                          []byte // JSON, nil for none
	payload                          any    // string, or []byte for bytea
}

// column returns the text of one of the columns that a subject can be made of.
func (r *written) column(name string) (text string, known bool) {
	switch name {
	case ColumnID:
		return r.id, true
	case ColumnTopic:
		return r.topic, true
	case ColumnAggregateID:
		return r.aggregateID, true
	case ColumnSequence:
		return r.sequence, true
	}
	return "", false
}

// row checks a draft and makes a row of it.
func (w *Writer) row(ctx context.Context, d Draft) (written, error) {
	r := written{id: d.ID, topic: d.Topic, aggregateID: d.AggregateID, payload: d.Payload}
	if r.id == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return r, fmt.Errorf("make an id: %w", err)
		}
		r.id = id.String()
	}
	if d.Sequence != 0 {
		r.sequence = strconv.FormatInt(d.Sequence, 10)
	}
	if w.PayloadType != "bytea" {
		r.payload = string(d.Payload)
	}
	if w.Inject != nil {
		all := Carrier{}
		w.Inject(ctx, all)
		for name, value := range d.Headers {
			all[name] = value
		}
		d.Headers = all
	}
	if len(d.Headers) > 0 {
		var err error
		if r.headers, err = json.Marshal(d.Headers); err != nil {
			return r, fmt.Errorf("headers: %w", err)
		}
	}
	return r, w.check(&r, d)
}

// check applies the rules of the relay to what it will decode from the row.
func (w *Writer) check(r *written, d Draft) error {
	e := Event{ID: r.id, Subject: w.subject(r), AggregateID: r.aggregateID, Sequence: r.sequence, Payload: d.Payload}
	fault := subjectFault(e.Subject)
	if r.topic == "" {
		fault = "its topic is NULL or empty"
	}
	e.judge(fault, r.headers)
	limits := Limits{MessageBytes: w.MaxBytes, OriginBytes: maxOriginBytes}
	if w.PayloadType == "jsonb" { // it comes back with a blank behind each colon and comma
		limits.MessageBytes -= bytes.Count(d.Payload, []byte{':'}) + bytes.Count(d.Payload, []byte{','})
	}
	if err := e.Check(Limits{MessageBytes: max(limits.MessageBytes, 1), OriginBytes: limits.OriginBytes}); err != nil {
		return err
	}
	if w.PayloadType == "jsonb" || w.PayloadType == "json" {
		if !json.Valid(d.Payload) {
			return e.Poison("its payload is not JSON")
		}
	}
	return nil
}

// maxOriginBytes is the longest origin: a slot's name, an @, and a system identifier.
const maxOriginBytes = 63 + 1 + 20

func (w *Writer) subject(r *written) string {
	var b strings.Builder
	for _, p := range w.Template.parts {
		if p.column == "" {
			b.WriteString(p.text)
			continue
		}
		text, _ := r.column(p.column)
		b.WriteString(text)
	}
	return b.String()
}

// statement makes one INSERT of the rows. It names the optional columns only if one of the rows has a value for them, so
// that a table without them will do.
func (w *Writer) statement(rows []written) (string, []any) {
	columns := []struct {
		name string
		of   func(*written) any
	}{
		{ColumnID, func(r *written) any { return r.id }},
		{ColumnTopic, func(r *written) any { return r.topic }},
		{ColumnPayload, func(r *written) any { return r.payload }},
		{ColumnAggregateID, func(r *written) any { return orNull(r.aggregateID) }},
		{ColumnSequence, func(r *written) any { return orNull(r.sequence) }},
		{ColumnHeaders, func(r *written) any { return orNull(string(r.headers)) }},
	}
	var names []string
	used := columns[:0]
	for i, c := range columns {
		if i < 3 || slices.ContainsFunc(rows, func(r written) bool { return c.of(&r) != nil }) {
			used, names = append(used, c), append(names, c.name)
		}
	}
	var b strings.Builder
	args := make([]any, 0, len(rows)*len(used))
	b.WriteString("INSERT INTO " + w.Table.statementName() + " (" + strings.Join(names, ", ") + ") VALUES ")
	for i := range rows {
		for j, c := range used {
			args = append(args, c.of(&rows[i]))
			switch {
			case j > 0:
				b.WriteString(", $")
			case i > 0:
				b.WriteString("), ($")
			default:
				b.WriteString("($")
			}
			b.WriteString(strconv.Itoa(len(args)))
		}
	}
	b.WriteByte(')')
	return b.String(), args
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
