package outbox

import (
	"encoding/binary"
	"errors"
	"testing"
)

const testOID = 16385

// Types of the outbox table's columns, by pg_type.dat.
const (
	typeUUID  = 2950
	typeText  = 25
	typeBytea = 17
	typeJSONB = 3802
	typeInt8  = 20
	typeTime  = 1184
)

type column struct {
	name string
	typ  uint32
}

// standard returns the columns of the table that DDL makes, with a payload of this type.
func standard(payload uint32) []column {
	return []column{
		{ColumnID, typeUUID},
		{ColumnTopic, typeText},
		{ColumnPayload, payload},
		{ColumnAggregateID, typeText},
		{ColumnSequence, typeInt8},
		{ColumnHeaders, typeJSONB},
		{ColumnCreatedAt, typeTime},
	}
}

// relationMessage is a Relation message of protocol 1.
func relationMessage(oid uint32, table Table, columns []column) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'R'}, oid)
	b = append(append(b, table.Schema...), 0)
	b = append(append(b, table.Name...), 0)
	b = append(b, 'd')
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for i, c := range columns {
		var key byte
		if i == 0 {
			key = 1
		}
		b = append(append(append(b, key), c.name...), 0)
		b = binary.BigEndian.AppendUint32(b, c.typ)
		b = binary.BigEndian.AppendUint32(b, 0xffffffff)
	}
	return b
}

// insertMessage is an Insert message of protocol 1 in text format. A nil value is NULL.
func insertMessage(oid uint32, values ...[]byte) []byte { return appendInsert(nil, oid, values...) }

func appendInsert(b []byte, oid uint32, values ...[]byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, 'I'), oid)
	b = binary.BigEndian.AppendUint16(append(b, 'N'), uint16(len(values)))
	for _, v := range values {
		if v == nil {
			b = append(b, 'n')
			continue
		}
		b = binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v)))
		b = append(b, v...)
	}
	return b
}

// row makes values of texts: every element is a string, a []byte, or nil for NULL.
func row(values ...any) [][]byte {
	out := make([][]byte, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case string:
			out[i] = []byte(v)
		case []byte:
			out[i] = append([]byte{}, v...)
		}
	}
	return out
}

func outboxTable() Table { return Table{Schema: "public", Name: "outbox"} }

// newDecoder returns a decoder of the outbox table that has had a Relation message with these columns.
func newDecoder(t testing.TB, template string, columns []column) *Decoder {
	t.Helper()
	d := NewDecoder(outboxTable(), mustTemplate(t, template))
	d.Reset(testOID)
	relate(t, d, testOID, outboxTable(), columns)
	return d
}

func mustTemplate(t testing.TB, s string) Template {
	t.Helper()
	template, err := ParseTemplate(s)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func relate(t testing.TB, d *Decoder, oid uint32, table Table, columns []column) {
	t.Helper()
	if err := d.Relation(relationMessage(oid, table, columns)); err != nil {
		t.Fatal(err)
	}
}

// decode returns the event of a row, which must be one of the outbox table.
func decode(t testing.TB, d *Decoder, values ...any) Event {
	t.Helper()
	var ev Event
	ours, err := d.Insert(insertMessage(testOID, row(values...)...), &ev)
	if !ours || err != nil {
		t.Fatalf("insert: ours %v, %v", ours, err)
	}
	return ev
}

// reason returns why an event can never be stored, or "".
func reason(t testing.TB, ev *Event) string {
	t.Helper()
	err := ev.Check(Limits{})
	if err == nil {
		return ""
	}
	var poison *PoisonError
	if !errors.As(err, &poison) {
		t.Fatalf("Check returned %T: %v", err, err)
	}
	return poison.Reason
}
