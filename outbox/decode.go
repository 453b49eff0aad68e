package outbox

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// ErrMessage is the error of bytes that are not the pgoutput message they should be.
var ErrMessage = errors.New("malformed pgoutput message")

// TableError says that the rows of the outbox table can no longer be turned into events.
type TableError struct {
	Table  Table
	Reason string
}

func (e *TableError) Error() string { return fmt.Sprintf("outbox table %s: %s", e.Table, e.Reason) }

const byteaOID = 17 // pg_type.dat

// The fields of an event that come from one column each; what the subject template names besides them follows.
const (
	fieldID = iota
	fieldTopic
	fieldPayload
	fieldAggregateID
	fieldSequence
	fieldHeaders
	fieldsFixed
)

// Decoder turns pgoutput's Relation and Insert messages (protocol 1, text format) into events. Columns are mapped by
// name, from the Relation message in force at that point of the stream; columns that no event needs are passed over.
// It is owned by one goroutine.
//
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
type Decoder struct {
	table    Table
	oid      uint32
	template Template
	names    []string // column of each field
	parts    []part   // of the template

	relations map[uint32]*relation
	cells     [][]byte // of the present row, by field; nil is NULL
	subjects  map[string]subject
	scratch   []byte
	text      textArena
	raw       byteArena
}

// part is a part of the template whose column is a field.
type part struct {
	text  string // constant, if field < 0
	field int
}

type relation struct {
	fields []uint16 // by column: 1 + the field it fills, 0 for none
	bytea  bool     // the payload is bytea
	fault  error    // why its rows cannot be decoded
}

type subject struct {
	text, fault string
}

// NewDecoder returns a decoder for the rows of a table.
func NewDecoder(table Table, template Template) *Decoder {
	d := &Decoder{
		table: table, template: template,
		names: []string{ColumnID, ColumnTopic, ColumnPayload, ColumnAggregateID, ColumnSequence, ColumnHeaders},
	}
	for _, c := range template.Columns() {
		if !slices.Contains(d.names, c) {
			d.names = append(d.names, c)
		}
	}
	for _, p := range template.parts {
		d.parts = append(d.parts, part{text: p.text, field: slices.Index(d.names, p.column)})
	}
	d.cells = make([][]byte, len(d.names))
	d.Reset(0)
	return d
}

// Reset forgets what an earlier session announced. oid is the table's OID, 0 if unknown: it tells a renamed outbox table
// from a foreign one.
func (d *Decoder) Reset(oid uint32) {
	d.oid = oid
	d.relations = make(map[uint32]*relation)
	d.subjects = make(map[string]subject)
}

// Relation takes a Relation message. A table that lacks a column is no error yet: only a row of it is.
func (d *Decoder) Relation(data []byte) error {
	r := reader{b: data}
	r.skip(1)
	oid := r.uint32()
	schema, name := r.string(), r.string()
	r.skip(1) // replica identity
	columns := int(r.uint16())
	if r.bad {
		return fmt.Errorf("relation: %w", ErrMessage)
	}
	if schema != d.table.Schema || name != d.table.Name {
		delete(d.relations, oid)
		if oid == d.oid && oid != 0 {
			renamed := Table{Schema: schema, Name: name}
			d.relations[oid] = &relation{fault: &TableError{Table: d.table, Reason: fmt.Sprintf("it was renamed to %s", renamed)}}
		}
		return nil
	}
	rel := &relation{fields: make([]uint16, columns)}
	missing := append([]string{ColumnID, ColumnTopic, ColumnPayload}, d.template.Columns()...)
	for i := range columns {
		r.skip(1) // flags
		column := r.string()
		typ := r.uint32()
		r.skip(4) // type modifier
		if field := slices.Index(d.names, column); field >= 0 {
			rel.fields[i] = uint16(field + 1)
			rel.bytea = rel.bytea || field == fieldPayload && typ == byteaOID
		}
		missing = slices.DeleteFunc(missing, func(m string) bool { return m == column })
	}
	if r.bad {
		return fmt.Errorf("relation %s: %w", d.table, ErrMessage)
	}
	if len(missing) > 0 {
		rel.fault = &TableError{Table: d.table, Reason: fmt.Sprintf("the column %q is missing", missing[0])}
	}
	d.relations[oid] = rel
	return nil
}

// Insert decodes an Insert message into ev, all but its position and commit time. It reports false for a row of another
// table. A *TableError means that rows of the outbox table can no longer be decoded; other errors wrap ErrMessage. An
// event that can never be stored is no error here: Event.Check tells.
func (d *Decoder) Insert(data []byte, ev *Event) (bool, error) {
	r := reader{b: data}
	r.skip(1)
	rel := d.relations[r.uint32()]
	if r.bad {
		return false, fmt.Errorf("insert: %w", ErrMessage)
	}
	if rel == nil {
		return false, nil
	}
	if rel.fault != nil {
		return false, rel.fault
	}
	clear(d.cells)
	r.skip(1) // 'N'
	if int(r.uint16()) != len(rel.fields) {
		return false, fmt.Errorf("insert into %s: %w", d.table, ErrMessage)
	}
	for _, field := range rel.fields {
		switch r.byte() {
		case 't':
			if cell := r.bytes(int(r.uint32())); field > 0 {
				d.cells[field-1] = cell
			}
		case 'n':
		default: // an insert has no unchanged values, and binary values were not asked for
			r.bad = true
		}
		if r.bad {
			return false, fmt.Errorf("insert into %s: %w", d.table, ErrMessage)
		}
	}
	return true, d.fill(rel, ev)
}

func (d *Decoder) fill(rel *relation, ev *Event) error {
	*ev = Event{
		ID:          d.text.string(d.cells[fieldID]),
		AggregateID: d.text.string(d.cells[fieldAggregateID]),
		Sequence:    d.text.string(d.cells[fieldSequence]),
	}
	ev.judge(d.subject(ev), d.cells[fieldHeaders])
	payload := d.cells[fieldPayload]
	if !rel.bytea {
		ev.Payload = append(d.raw.take(len(payload)), payload...)
		return nil
	}
	room := len(payload)
	if bytes.HasPrefix(payload, []byte(`\x`)) {
		room = room/2 - 1 // two digits for a byte, after \x
	}
	var err error
	ev.Payload, err = appendBytea(d.raw.take(room), payload)
	return err
}

// subject renders the template and checks the result, once for each distinct subject.
func (d *Decoder) subject(ev *Event) string {
	d.scratch = d.scratch[:0]
	for _, p := range d.parts {
		if p.field < 0 {
			d.scratch = append(d.scratch, p.text...)
			continue
		}
		d.scratch = append(d.scratch, d.cells[p.field]...)
	}
	s, ok := d.subjects[string(d.scratch)]
	if !ok {
		s.text = string(d.scratch)
		s.fault = subjectFault(s.text)
		const remembered = 4096 // subjects; templates with an aggregate id in them have no bound of their own
		if len(d.subjects) >= remembered {
			clear(d.subjects)
		}
		d.subjects[s.text] = s
	}
	ev.Subject = s.text
	if len(d.cells[fieldTopic]) == 0 {
		return "its topic is NULL or empty"
	}
	return s.fault
}

// appendBytea decodes the text form of a bytea, whichever of the two formats bytea_output has chosen.
func appendBytea(dst, text []byte) ([]byte, error) {
	if digits, ok := bytes.CutPrefix(text, []byte(`\x`)); ok {
		dst, err := hex.AppendDecode(dst, digits)
		if err != nil {
			return dst, fmt.Errorf("bytea: %w", ErrMessage)
		}
		return dst, nil
	}
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] != '\\':
			dst = append(dst, text[i])
		case i+1 < len(text) && text[i+1] == '\\':
			dst = append(dst, '\\')
			i++
		case i+3 < len(text) && text[i+1] <= '3' && octal(text[i+1]) && octal(text[i+2]) && octal(text[i+3]):
			dst = append(dst, (text[i+1]-'0')<<6|(text[i+2]-'0')<<3|(text[i+3]-'0'))
			i += 3
		default:
			return dst, fmt.Errorf("bytea: %w", ErrMessage)
		}
	}
	return dst, nil
}

func octal(c byte) bool { return c >= '0' && c <= '7' }
