package test

import (
	"slices"
	"testing"

	"github.com/seed-1cfd9858/relay/test/harness"
)

// NULL and empty payloads are empty messages. Without an id or a topic there is none.
func TestC37_NullColumns(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms, DDL: []string{`CREATE TABLE outbox (id text, topic text, payload text, headers jsonb)`}})
	r := &rows{t: t, w: w}
	const sql = `INSERT INTO outbox (id, topic, payload, headers) VALUES ($1, $2, $3, $4)`
	r.put(sql, "a", nil, nil)
	r.put(sql, "a", "", "{}")
	bad := []struct {
		id, topic any
		text      string
	}{
		{nil, "a", "its id is NULL or empty"},
		{"", "a", "its id is NULL or empty"},
		{eventID(101), nil, "its topic is NULL or empty"},
		{eventID(102), "", "its topic is NULL or empty"},
		{" padded", "a", "blank"},
	}
	for _, b := range bad {
		w.Exec(sql, b.id, b.topic, "x", nil)
		r.put(sql, "a", "x", nil)
	}
	all := r.good
	for i, b := range bad {
		r.good = all[:2+i]
		id, _ := b.id.(string)
		r.halt(id, b.text)
	}
	r.good = all
	r.rest()
	for _, m := range w.Messages()[:2] {
		if m.Body != "" {
			t.Errorf("the body of %s is %q, want none", m.ID, m.Body)
		}
	}
	for _, m := range w.Messages()[2:] {
		if m.Body != "x" {
			t.Errorf("the body of %s is %q, want x", m.ID, m.Body)
		}
	}
}

// Headers of a row that would steer the broker, or that a message cannot carry.
func TestC41_ReservedAndMalformedHeaders(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	r := &rows{t: t, w: w}
	const sql = `INSERT INTO outbox (id, topic, payload, headers) VALUES ($1, 'a', '{}', $2)`
	r.put(sql, `{"Trace-Id": "1", "tags": ["x", "y"], "empty": "", "Natsy": "2"}`)
	bad := []struct{ headers, text string }{
		{`{"Nats-Rollup": "all"}`, "Nats-Rollup"},
		{`{"nats-msg-id": "x"}`, "nats-msg-id"},
		{`{"Nats-Expected-Last-Sequence": "1"}`, "Nats-Expected-Last-Sequence"},
		{`{"relay-position": "x"}`, "relay-position"},
		{`{"a key": "x"}`, "a key"},
		{`{"a:key": "x"}`, "a:key"},
		{`{"": "x"}`, "header"},
		{`{"number": 1}`, "not a string"},
		{`{"null": null}`, "not a string"},
		{`{"deep": {"a": "b"}}`, "not a string"},
		{`["a"]`, "not a JSON object"},
		{`{"break": "a\r\nNats-Rollup: all"}`, "break"},
	}
	ids := make([]string, len(bad))
	for i, b := range bad {
		ids[i] = r.id()
		w.Exec(sql, ids[i], b.headers)
	}
	r.put(sql, `{}`)
	all := r.good
	r.good = all[:1]
	for i, b := range bad {
		r.halt(ids[i], b.text)
	}
	r.good = all
	r.rest()
	first := w.Messages()[0]
	if got := first.Header["Nats-Msg-Id"]; len(got) != 1 || got[0] != eventID(1) {
		t.Errorf("Nats-Msg-Id is %q", got)
	}
	if got := first.Header["tags"]; !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("tags are %q", got)
	}
	if got := first.Header["Trace-Id"]; !slices.Equal(got, []string{"1"}) {
		t.Errorf("Trace-Id is %q", got)
	}
}
