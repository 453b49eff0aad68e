package outbox

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func ignoreInternals() cmp.Option { return cmpopts.IgnoreUnexported(Event{}) }

func sameBytes() cmp.Option { return cmp.Comparer(bytes.Equal) }

func TestDecoder_Row(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, DefaultTemplate, standard(typeJSONB))
	got := decode(t, d, "6f1d", "order.created", `{"a": 1}`, "order-7", "12", `{"b": "2", "a": ["1", "3"]}`, "2026-01-02 03:04:05+00")
	want := Event{
		ID: "6f1d", Subject: "outbox.order.created", AggregateID: "order-7", Sequence: "12", Payload: []byte(`{"a": 1}`),
		Headers: []Header{{"a", "1"}, {"a", "3"}, {"b", "2"}},
	}
	if diff := cmp.Diff(want, got, ignoreInternals()); diff != "" {
		t.Error(diff)
	}
	if why := reason(t, &got); why != "" {
		t.Error(why)
	}
	if size := len(`{"a": 1}`) + len("a: 1\r\na: 3\r\nb: 2\r\n") + len("6f1d") + EventOverhead; got.Size() != size {
		t.Errorf("Size is %d, want %d", got.Size(), size)
	}
}

// TestDecoder_MissingColumns: a table that lacks a column is an error when a row of it comes, not before.
func TestDecoder_MissingColumns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ template, without string }{
		{DefaultTemplate, ColumnID},
		{DefaultTemplate, ColumnTopic},
		{DefaultTemplate, ColumnPayload},
		{"o.{topic}.{aggregate_id}", ColumnAggregateID},
		{"o.{region}.{topic}", "region"},
		{"o.{aggregate_id}", ColumnTopic},
	} {
		t.Run(test.template+" without "+test.without, func(t *testing.T) {
			t.Parallel()
			var columns []column
			for _, c := range append(standard(typeText), column{"region", typeText}) {
				if c.name != test.without {
					columns = append(columns, c)
				}
			}
			d := newDecoder(t, test.template, columns)
			var ev Event
			_, err := d.Insert(insertMessage(testOID, row("1", "2", "3", "4", "5", "{}", "7")...), &ev)
			var table *TableError
			if !errors.As(err, &table) || table.Table != outboxTable() || !strings.Contains(err.Error(), `"`+test.without+`"`) {
				t.Fatalf("error %v", err)
			}
			relate(t, d, testOID, outboxTable(), append(columns, column{test.without, typeText})) // repaired
			if _, err := d.Insert(insertMessage(testOID, row("1", "2", "3", "4", "5", "{}", "7", "8")...), &ev); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDecoder_ChangedTable: the Relation message in force counts, not the first.
func TestDecoder_ChangedTable(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, DefaultTemplate, []column{{"id", typeUUID}, {"topic", typeText}, {"payload", typeBytea}})
	if ev := decode(t, d, "1", "t", `\x41`); string(ev.Payload) != "A" {
		t.Errorf("payload %q", ev.Payload)
	}
	for _, test := range []struct {
		name    string
		columns []column
		values  []any
		want    Event
	}{
		{
			"a column is added",
			[]column{{"id", typeUUID}, {"topic", typeText}, {"payload", typeBytea}, {"aggregate_id", typeText}},
			[]any{"2", "t", `\x42`, "a"},
			Event{ID: "2", Subject: "outbox.t", Payload: []byte("B"), AggregateID: "a"},
		},
		{
			"it is dropped again",
			[]column{{"id", typeUUID}, {"topic", typeText}, {"payload", typeBytea}},
			[]any{"3", "t", `\x43`},
			Event{ID: "3", Subject: "outbox.t", Payload: []byte("C")},
		},
		{
			"another order and another type",
			[]column{{"status", typeText}, {"payload", typeText}, {"topic", typeText}, {"id", typeUUID}},
			[]any{"pending", `\x44`, "u", "4"},
			Event{ID: "4", Subject: "outbox.u", Payload: []byte(`\x44`)},
		},
		{
			"a renamed column takes its place",
			[]column{{"topic", typeText}, {"old_topic", typeText}, {"payload", typeText}, {"id", typeUUID}},
			[]any{"new", "old", "p", "5"},
			Event{ID: "5", Subject: "outbox.new", Payload: []byte("p")},
		},
		{
			"bytea in other columns stays text",
			[]column{{"payload", typeText}, {"id", typeBytea}, {"topic", typeText}, {"aggregate_id", typeBytea}},
			[]any{`\x41`, `\x42`, "t", `\x43`},
			Event{ID: `\x42`, Subject: "outbox.t", AggregateID: `\x43`, Payload: []byte(`\x41`)},
		},
		{
			"names are compared as they are",
			[]column{{"ID", typeText}, {"id", typeUUID}, {"Payload", typeBytea}, {"payload", typeText}, {"topic", typeText}},
			[]any{"x", "6", `\xff`, `\xff`, "t"},
			Event{ID: "6", Subject: "outbox.t", Payload: []byte(`\xff`)},
		},
	} {
		relate(t, d, testOID, outboxTable(), test.columns)
		ev := decode(t, d, test.values...)
		if diff := cmp.Diff(test.want, ev, ignoreInternals()); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestDecoder_OtherTables(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, DefaultTemplate, standard(typeText))
	relate(t, d, 7, Table{"other", "outbox"}, standard(typeText))
	relate(t, d, 8, Table{"public", "Outbox"}, standard(typeText))
	relate(t, d, 9, Table{"public", "outbox2"}, []column{{"n", typeInt8}})
	for _, oid := range []uint32{7, 8, 9, 10, 0} {
		ev := Event{ID: "untouched"}
		ours, err := d.Insert(insertMessage(oid, row("1", "t", "p", nil, nil, nil, nil)...), &ev)
		if ours || err != nil || ev.ID != "untouched" {
			t.Errorf("oid %d: ours %v, %v, id %q", oid, ours, err, ev.ID)
		}
	}
	if ev := decode(t, d, "1", "t", "p", nil, nil, nil, nil); ev.ID != "1" {
		t.Errorf("id %q", ev.ID)
	}
}

// TestDecoder_Renamed: rows of a table that no longer bears the name are not lost in silence.
func TestDecoder_Renamed(t *testing.T) {
	t.Parallel()
	values := row("1", "t", "p", nil, nil, nil, nil)
	for _, test := range []struct {
		name    string
		oid     uint32 // as the decoder knows it
		renamed bool
	}{{"known", testOID, true}, {"unknown", 0, false}, {"another table", testOID + 1, false}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := NewDecoder(outboxTable(), mustTemplate(t, DefaultTemplate))
			d.Reset(test.oid)
			relate(t, d, testOID, outboxTable(), standard(typeText))
			decode(t, d, "0", "t", "p", nil, nil, nil, nil)

			relate(t, d, testOID, Table{"public", "Old Outbox"}, standard(typeText))
			var ev Event
			ours, err := d.Insert(insertMessage(testOID, values...), &ev)
			var table *TableError
			if ours || errors.As(err, &table) != test.renamed {
				t.Fatalf("ours %v, %v", ours, err)
			}
			if test.renamed && !strings.Contains(err.Error(), `renamed to public."Old Outbox"`) {
				t.Error(err)
			}

			relate(t, d, testOID+1, outboxTable(), standard(typeText)) // its successor
			if ours, err := d.Insert(insertMessage(testOID+1, values...), &ev); !ours || err != nil {
				t.Errorf("successor: ours %v, %v", ours, err)
			}
		})
	}
}

func TestDecoder_Reset(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, DefaultTemplate, standard(typeText))
	d.Reset(testOID)
	var ev Event
	if ours, err := d.Insert(insertMessage(testOID, row("1", "t", "p", nil, nil, nil, nil)...), &ev); ours || err != nil {
		t.Errorf("a relation of the session before is in force: ours %v, %v", ours, err)
	}
}

func TestDecoder_Malformed(t *testing.T) {
	t.Parallel()
	relation := relationMessage(testOID, outboxTable(), standard(typeBytea))
	insert := insertMessage(testOID, row("1", "t", `\x41`, nil, nil, `{"a": "b"}`, "now")...)
	for n := range len(relation) {
		d := NewDecoder(outboxTable(), mustTemplate(t, DefaultTemplate))
		if err := d.Relation(relation[:n:n]); !errors.Is(err, ErrMessage) {
			t.Errorf("relation cut at %d of %d: %v", n, len(relation), err)
		}
	}
	for n := range len(insert) {
		var ev Event
		d := newDecoder(t, DefaultTemplate, standard(typeBytea))
		if ours, err := d.Insert(insert[:n:n], &ev); ours || !errors.Is(err, ErrMessage) {
			t.Errorf("insert cut at %d of %d: ours %v, %v", n, len(insert), ours, err)
		}
	}
	for name, data := range map[string][]byte{
		"more columns":   insertMessage(testOID, row("1", "t", "p", nil, nil, nil, nil, nil)...),
		"fewer columns":  insertMessage(testOID, row("1", "t", "p")...),
		"unchanged":      append(insertMessage(testOID, row("1", "t", `\x`, nil, nil, nil, nil)...)[:8], "uuuuuuu"...),
		"huge length":    append(insertMessage(testOID, row("1", "t", `\x`, nil, nil, nil, nil)...)[:8], "t\xff\xff\xff\xff"...),
		"odd digits":     insertMessage(testOID, row("1", "t", `\x414`, nil, nil, nil, nil)...),
		"no hex":         insertMessage(testOID, row("1", "t", `\xzz`, nil, nil, nil, nil)...),
		"lone backslash": insertMessage(testOID, row("1", "t", `a\`, nil, nil, nil, nil)...),
		"two octals":     insertMessage(testOID, row("1", "t", `\01`, nil, nil, nil, nil)...),
		"a big octal":    insertMessage(testOID, row("1", "t", `\400`, nil, nil, nil, nil)...),
		"no octal":       insertMessage(testOID, row("1", "t", `\189`, nil, nil, nil, nil)...),
	} {
		var ev Event
		d := newDecoder(t, DefaultTemplate, standard(typeBytea))
		if _, err := d.Insert(data, &ev); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
