package outbox

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestC31_Bytea decodes both forms that bytea_output can choose.
func TestC31_Bytea(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	random := make([]byte, 100_000)
	source := rand.New(rand.NewPCG(31, 0))
	for i := range random {
		random[i] = byte(source.Uint32())
	}
	d := newDecoder(t, DefaultTemplate, standard(typeBytea))
	for name, payload := range map[string][]byte{
		"empty":               {},
		"binary":              {0x00, 0xff, 0x0a, 0x0d},
		"every byte":          all,
		"100 kB":              random,
		"text":                []byte("hello"),
		"looks like hex":      []byte(`\x41`),
		"looks like escape":   []byte(`\\ \001`),
		"backslash at an end": []byte(`\`),
		"quotes":              []byte(`'"`),
	} {
		for format, text := range map[string]string{
			"hex": `\x` + hex.EncodeToString(payload), "upper-case hex": fmt.Sprintf(`\x%X`, payload), "escape": escape(payload),
		} {
			ev := decode(t, d, "1", "t", text, nil, nil, nil, nil)
			if !bytes.Equal(ev.Payload, payload) || reason(t, &ev) != "" {
				t.Errorf("%s in %s format: %q", name, format, ev.Payload)
			}
		}
	}
}

// escape is the text of a bytea under bytea_output = escape.
func escape(b []byte) string {
	var out bytes.Buffer
	for _, c := range b {
		switch {
		case c == '\\':
			out.WriteString(`\\`)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&out, `\%03o`, c)
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// TestC17_PayloadBytes: a payload that is not bytea is handed on byte for byte.
func TestC17_PayloadBytes(t *testing.T) {
	t.Parallel()
	for name, typ := range map[string]uint32{"json": 114, "jsonb": typeJSONB, "text": typeText, "domain": 99999} {
		d := newDecoder(t, DefaultTemplate, standard(typ))
		for _, payload := range []string{
			`12345678901234567890`,
			`0.1000000000000000055511151231257827`,
			`1e400`,
			`{"b":1,"a":2,"a":3}`,
			`{ "b" : 1 ,  "a":2}`,
			`"<&>"`,
			`"😀"`,
			"\"\u2028\"",
			`"\u0000"`,
			`"\u00e9"`,
			"{\n\t\"a\": null\r\n}",
			`\x41`,
			`a\\b\001`,
			"\xff\xfe", // a database in SQL_ASCII
		} {
			ev := decode(t, d, "1", "t", payload, nil, nil, nil, nil)
			if string(ev.Payload) != payload || reason(t, &ev) != "" {
				t.Errorf("%s %q came out as %q", name, payload, ev.Payload)
			}
		}
	}
}

func TestC37_NullAndEmpty(t *testing.T) {
	t.Parallel()
	const noID, noTopic = "its id is NULL or empty", "its topic is NULL or empty"
	for _, typ := range []uint32{typeText, typeBytea} {
		d := newDecoder(t, DefaultTemplate, standard(typ))
		for _, test := range []struct {
			name   string
			values []any
			want   string
		}{
			{"payload NULL", []any{"1", "t", nil, "a", "2", "{}", "now"}, ""},
			{"payload empty", []any{"1", "t", "", "a", "2", "{}", "now"}, ""},
			{"id NULL", []any{nil, "t", "p", "a", "2", "{}", "now"}, noID},
			{"id empty", []any{"", "t", "p", "a", "2", "{}", "now"}, noID},
			{"topic NULL", []any{"1", nil, "p", "a", "2", "{}", "now"}, noTopic},
			{"topic empty", []any{"1", "", "p", "a", "2", "{}", "now"}, noTopic},
			{"aggregate NULL", []any{"1", "t", "p", nil, "2", "{}", "now"}, ""},
			{"aggregate empty", []any{"1", "t", "p", "", "2", "{}", "now"}, ""},
			{"sequence NULL", []any{"1", "t", "p", "a", nil, "{}", "now"}, ""},
			{"headers NULL", []any{"1", "t", "p", "a", "2", nil, "now"}, ""},
			{"headers empty", []any{"1", "t", "p", "a", "2", "", "now"}, ""},
			{"id and topic NULL", []any{nil, nil, nil, nil, nil, nil, nil}, noID},
		} {
			ev := decode(t, d, test.values...)
			if why := reason(t, &ev); why != test.want {
				t.Errorf("%s: %q, want %q", test.name, why, test.want)
			}
			if test.values[2] == nil || test.values[2] == "" {
				if len(ev.Payload) != 0 {
					t.Errorf("%s: payload %q", test.name, ev.Payload)
				}
			}
			if values := row(test.values...); ev.ID != string(values[0]) || ev.AggregateID != string(values[3]) || ev.Sequence != string(values[4]) {
				t.Errorf("%s: id %q, aggregate %q, sequence %q", test.name, ev.ID, ev.AggregateID, ev.Sequence)
			}
		}
	}
	// A topic must be there even where the subject does without it.
	d := newDecoder(t, "o.{aggregate_id}", standard(typeText))
	if ev := decode(t, d, "1", nil, "p", "a", nil, nil, nil); reason(t, &ev) != noTopic {
		t.Errorf("reason %q", reason(t, &ev))
	}
}

// TestI6_ID: the id is a function of the id column alone, whatever else the row holds and wherever it comes.
func TestI6_ID(t *testing.T) {
	t.Parallel()
	const id = "7b1c9f3e-0000-4000-8000-1234567890ab"
	for _, template := range []string{DefaultTemplate, "{topic}", "x.{aggregate_id}.{topic}", "x.{id}"} {
		for _, typ := range []uint32{typeText, typeBytea, typeJSONB} {
			d := newDecoder(t, template, standard(typ))
			for _, rest := range [][]any{
				{"t", "", "a", nil, nil, nil},
				{"t", `\x00`, "a", nil, nil, nil},
				{"other", "{}", "b", "9", `{"Nats-Msg-Id": "x"}`, "now"},
				{"a b", "{}", "b", "-1", `{"relay-position": "x"}`, "then"},
				{nil, nil, nil, nil, nil, nil},
			} {
				for range 2 {
					if ev := decode(t, d, append([]any{id}, rest...)...); ev.ID != id {
						t.Errorf("id %q of the row %q", ev.ID, rest)
					}
				}
			}
			decode(t, d, "another", "t", "{}", "a", nil, nil, nil)
		}
	}
}

// TestDecoder_OwnMemory: events stay as they are when the buffer that they came from is used again.
func TestDecoder_OwnMemory(t *testing.T) {
	t.Parallel()
	const rows = 5000
	for _, typ := range []uint32{typeText, typeBytea} {
		d := newDecoder(t, DefaultTemplate, standard(typ))
		events := make([]Event, rows)
		want := make([]Event, rows)
		var buffer []byte
		for i := range rows {
			payload := bytes.Repeat([]byte{byte('a' + i%26)}, i%700)
			if i%500 == 499 {
				payload = bytes.Repeat([]byte(fmt.Sprintf("%d ", i)), 10_000)
			}
			want[i] = Event{
				ID: fmt.Sprintf("id-%d", i), Subject: fmt.Sprintf("outbox.topic-%d", i%50), AggregateID: fmt.Sprintf("aggregate-%d", i%9),
				Sequence: fmt.Sprint(i), Payload: payload, Headers: []Header{{"Number", fmt.Sprint(i)}},
			}
			text := payload
			if typ == typeBytea {
				text = fmt.Appendf(nil, `\x%x`, payload)
			}
			values := row(want[i].ID, fmt.Sprintf("topic-%d", i%50), text, want[i].AggregateID, want[i].Sequence, fmt.Sprintf(`{"Number": "%d"}`, i), nil)
			buffer = appendInsert(buffer[:0], testOID, values...)
			if ours, err := d.Insert(buffer, &events[i]); !ours || err != nil {
				t.Fatal(ours, err)
			}
			for j := range buffer {
				buffer[j] = 0xee
			}
		}
		for i := range events {
			// Neither does one event reach into the next when somebody appends to its payload.
			_ = append(events[i].Payload, 0xee, 0xee)
		}
		for i := range events {
			if diff := cmp.Diff(want[i], events[i], ignoreInternals(), sameBytes()); diff != "" {
				t.Fatalf("event %d: %s", i, diff)
			}
		}
	}
}
