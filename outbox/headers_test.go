package outbox

import (
	"slices"
	"strings"
	"testing"
)

func TestC41_Headers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, json string
		want       []Header
		fault      string // part of the reason
	}{
		{"none", `{}`, nil, ""},
		{"one", `{"trace": "1"}`, []Header{{"trace", "1"}}, ""},
		{"sorted", `{"b": "1", "a": "2", "B": "3"}`, []Header{{"B", "3"}, {"a", "2"}, {"b", "1"}}, ""},
		{"several values in their order", `{"a": ["2", "1", "2"]}`, []Header{{"a", "2"}, {"a", "1"}, {"a", "2"}}, ""},
		{"no values", `{"a": []}`, nil, ""},
		{"empty value", `{"a": ""}`, []Header{{"a", ""}}, ""},
		{"the last of two counts", `{"a": "1", "a": "2"}`, []Header{{"a", "2"}}, ""},
		{"inner blanks", `{"a": "b  c"}`, []Header{{"a", "b  c"}}, ""},
		{"colon in a value", `{"a": "b: c"}`, []Header{{"a", "b: c"}}, ""},
		{"UTF-8 in a value", `{"a": "é\u00e9"}`, []Header{{"a", "éé"}}, ""},
		{"signs in a name", `{"!#$%&'*+-.^_|~": "x"}`, []Header{{"!#$%&'*+-.^_|~", "x"}}, ""},
		{"like reserved", `{"Natsy": "x", "Relayed": "y", "X-Nats-Rollup": "z"}`, []Header{{"Natsy", "x"}, {"Relayed", "y"}, {"X-Nats-Rollup", "z"}}, ""},

		{"rollup", `{"Nats-Rollup": "all"}`, nil, "reserved"},
		{"message id", `{"nats-msg-id": "x"}`, nil, "reserved"},
		{"expected sequence", `{"Nats-Expected-Last-Sequence": "1"}`, nil, "reserved"},
		{"any letter case", `{"NATS-TTL": "1s"}`, nil, "reserved"},
		{"the bare prefix", `{"nAtS-": "x"}`, nil, "reserved"},
		{"position", `{"Relay-Position": "x"}`, nil, "reserved"},
		{"position in small letters", `{"relay-position": "x"}`, nil, "reserved"},
		{"reserved behind good ones", `{"a": "1", "Nats-Rollup": "sub", "z": "2"}`, nil, "reserved"},
		{"reserved by an escape", `{"Nats\u002dRollup": "all"}`, nil, "reserved"},
		{"reserved without values", `{"Nats-Rollup": []}`, nil, "reserved"},

		{"blank in a name", `{"a b": "x"}`, nil, "not allowed"},
		{"blank before a reserved name", `{" Nats-Rollup": "all"}`, nil, "not allowed"},
		{"colon in a name", `{"a:b": "x"}`, nil, "not allowed"},
		{"line break in a name", `{"a\r\nNats-Rollup": "all"}`, nil, "not allowed"},
		{"NUL in a name", `{"a\u0000": "x"}`, nil, "not allowed"},
		{"DEL in a name", `{"a\u007f": "x"}`, nil, "not allowed"},
		{"letters beyond ASCII in a name", `{"é": "x"}`, nil, "not allowed"},
		{"no name", `{"": "x"}`, nil, "without a name"},

		{"line feed in a value", `{"a": "b\nNats-Rollup: all"}`, nil, "line break"},
		{"carriage return in a value", `{"a": ["b", "c\r"]}`, nil, "line break"},
		{"blank before a value", `{"a": " b"}`, nil, "blank"},
		{"tab after a value", `{"a": "b\t"}`, nil, "blank"},
		{"value not UTF-8", "{\"a\": \"\xff\"}", nil, "not UTF-8"},
		{"name not UTF-8", "{\"\xff\": \"a\"}", nil, "not UTF-8"},

		{"null", `{"a": null}`, nil, "not a string"},
		{"number", `{"a": 1}`, nil, "not a string"},
		{"boolean", `{"a": true}`, nil, "not a string"},
		{"object", `{"a": {"b": "c"}}`, nil, "not a string"},
		{"array of numbers", `{"a": ["1", 2]}`, nil, "not a string"},
		{"array in an array", `{"a": [["1"]]}`, nil, "not a string"},
		{"null in an array", `{"a": [null]}`, nil, "not a string"},

		{"an array", `["a"]`, nil, "not a JSON object"},
		{"a text", `"a"`, nil, "not a JSON object"},
		{"JSON null", `null`, nil, "not a JSON object"},
		{"no JSON", `a=b`, nil, "not a JSON object"},
		{"half an object", `{"a": "b"`, nil, "not a JSON object"},
		{"two objects", `{"a": "b"} {}`, nil, "not a JSON object"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDecoder(t, DefaultTemplate, standard(typeText))
			ev := decode(t, d, "the-id", "t", "p", nil, nil, test.json, nil)
			why := reason(t, &ev)
			if (why == "") != (test.fault == "") || !strings.Contains(why, test.fault) {
				t.Errorf("reason %q, want %q", why, test.fault)
			}
			if !slices.Equal(ev.Headers, test.want) || ev.ID != "the-id" {
				t.Errorf("id %q, headers %q", ev.ID, ev.Headers)
			}
		})
	}
}

// TestEvent_Values: what the client library would change, or a consumer could not read, is refused.
func TestEvent_Values(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, DefaultTemplate, standard(typeText))
	for _, test := range []struct{ value, fault string }{
		{"plain", ""},
		{"with blank\tinside", ""},
		{"über", ""},
		{"a: b", ""},
		{"line\nfeed", "has a line break"},
		{"carriage\rreturn", "has a line break"},
		{"\r\n", "has a line break"},
		{" before", "begins or ends with a blank"},
		{"after ", "begins or ends with a blank"},
		{"\tbefore", "begins or ends with a blank"},
		{"after\v", "begins or ends with a blank"},
		{"\f", "begins or ends with a blank"},
		{"\xff", "is not UTF-8"},
		{"a\xc3", "is not UTF-8"},
	} {
		for what, values := range map[string][]any{
			"its id":           {test.value, "t", "p", "a", "1", nil, nil},
			"its aggregate id": {"1", "t", "p", test.value, "1", nil, nil},
			"its sequence":     {"1", "t", "p", "a", test.value, nil, nil},
		} {
			want := ""
			if test.fault != "" {
				want = what + " " + test.fault
			}
			ev := decode(t, d, values...)
			if why := reason(t, &ev); why != want {
				t.Errorf("%s %q: %q, want %q", what, test.value, why, want)
			}
		}
	}
}
