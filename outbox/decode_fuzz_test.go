package outbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// FuzzDecoder: arbitrary bytes never panic and never become an event by accident; a row that is encoded from values is
// decoded to the same values.
func FuzzDecoder(f *testing.F) {
	relation := relationMessage(testOID, outboxTable(), standard(typeBytea))
	f.Add(relation, "id", "topic", []byte("payload"), "aggregate", "1", `{"a": "b"}`, uint8(0))
	f.Add(relation[:20], "", "", []byte{}, "", "", "", uint8(63))
	f.Add(insertMessage(testOID, row("1", "t", `\x41`, nil, nil, `{"a": ["b"]}`, nil)...), "i d", "a b", []byte{0, 255, '\\'}, "ä", "-1", "null", uint8(64))
	f.Add(insertMessage(testOID, row("1", "t", `\4`, nil, nil, nil, nil)...), " ", "$JS", []byte(`\x`), "\n", "\xff", `{"Nats-A": ""}`, uint8(128))
	f.Fuzz(func(t *testing.T, data []byte, id, topic string, payload []byte, aggregate, sequence, headers string, flags uint8) {
		var ev Event
		for _, typ := range []uint32{typeText, typeBytea} {
			d := newDecoder(t, "o.{topic}.{aggregate_id}", standard(typ))
			if ours, err := d.Insert(data, &ev); err != nil && !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			} else if ours && err == nil {
				_ = ev.Check(Limits{MessageBytes: 100})
			}
			if err := d.Relation(data); err != nil && !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
			var table *TableError
			if _, err := d.Insert(data, &ev); err != nil && !errors.Is(err, ErrMessage) && !errors.As(err, &table) {
				t.Fatal(err)
			}
		}

		text, typ := payload, uint32(typeText)
		switch flags >> 6 {
		case 1:
			text, typ = fmt.Appendf(nil, `\x%x`, payload), typeBytea
		case 2:
			text, typ = []byte(escape(payload)), typeBytea
		}
		if typ == typeText && text == nil {
			text = []byte{}
		}
		cells := [][]byte{[]byte(id), []byte(topic), text, []byte(aggregate), []byte(sequence), []byte(headers), nil}
		values := []string{id, topic, string(payload), aggregate, sequence, headers}
		for i := range values {
			if flags>>i&1 != 0 {
				cells[i], values[i] = nil, ""
			}
		}
		d := newDecoder(t, "o.{topic}.{aggregate_id}", standard(typ))
		ours, err := d.Insert(insertMessage(testOID, cells...), &ev)
		if !ours || err != nil {
			t.Fatalf("ours %v, %v", ours, err)
		}
		got := []string{ev.ID, ev.Subject, string(ev.Payload), ev.AggregateID, ev.Sequence}
		want := []string{values[0], "o." + values[1] + "." + values[3], values[2], values[3], values[4]}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("field %d is %q, want %q", i, got[i], want[i])
			}
		}
		if reason(t, &ev) == "" {
			checkMessage(t, &ev)
		}
	})
}

// checkMessage looks at an event that may be stored with the eyes of somebody who reads the wire.
func checkMessage(t *testing.T, ev *Event) {
	t.Helper()
	lines := strings.Split(headerBlock(ev, "s@1", 1), "\r\n")
	names := map[string]int{}
	for _, line := range lines[1 : len(lines)-2] {
		name, value, ok := strings.Cut(line, ": ")
		if !ok || strings.ContainsAny(line, "\r\n") || strings.Trim(value, " \t") != value {
			t.Fatalf("header line %q", line)
		}
		names[strings.ToLower(name)]++
	}
	if names["nats-msg-id"] != 1 || names["nats-expected-last-sequence"] != 1 || names["relay-position"] != 1 {
		t.Fatalf("headers %q", lines)
	}
	for name := range names {
		if strings.HasPrefix(name, "nats-") && name != "nats-msg-id" && name != "nats-expected-last-sequence" {
			t.Fatalf("header %q steers the stream", name)
		}
	}
	if strings.ContainsAny(ev.Subject, " \t\r\n\x00") || ev.ID == "" {
		t.Fatalf("id %q, subject %q", ev.ID, ev.Subject)
	}
}

// BenchmarkDecoderInsert decodes a row of seven columns with 250 bytes of payload.
func BenchmarkDecoderInsert(b *testing.B) {
	payload := `{"order": 1, "note": "` + strings.Repeat("x", 226) + `"}`
	for _, bench := range []struct {
		name    string
		typ     uint32
		payload string
		headers any
	}{
		{"jsonb", typeJSONB, payload, nil},
		{"bytea", typeBytea, fmt.Sprintf(`\x%x`, payload), nil},
		{"headers", typeJSONB, payload, `{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			d := newDecoder(b, DefaultTemplate, standard(bench.typ))
			data := insertMessage(testOID, row("7b1c9f3e-0000-4000-8000-1234567890ab", "order.created", bench.payload, "order-12345", "17",
				bench.headers, "2026-01-02 03:04:05.678901+00")...)
			var ev Event
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if ours, err := d.Insert(data, &ev); !ours || err != nil {
					b.Fatal(ours, err)
				}
			}
		})
	}
}
