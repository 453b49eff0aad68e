package outbox

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// FuzzHeaders: what passes for headers comes out of a NATS message as it went in, and steers nothing.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a": "1"}`, `{"a": ["1", "2"], "B": ""}`, `{"Nats-Rollup": "all"}`, `{"nats\u002dmsg-id": "x"}`, `{"a b": "x"}`, `{"a": "b\r\nc: d"}`,
		`{"a": 1}`, `{"": "x"}`, `{"é": "x"}`, `{"a": " x "}`, `{"a": "\u0000"}`, `[]`, `null`, "{\"a\": \"\xff\"}", `{"a:": "x"}`, `{"relay-position": "x"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		headers, fault := parseHeaders(data)
		if fault != "" {
			if headers != nil {
				t.Fatalf("%q is refused (%s) and gives %v", data, fault, headers)
			}
			return
		}
		wire := "NATS/1.0\r\n"
		for _, h := range headers {
			name := strings.ToLower(h.Name)
			if name == "" || strings.HasPrefix(name, "nats-") || strings.HasPrefix(name, "relay-") {
				t.Fatalf("%q gives the header %q", data, h.Name)
			}
			wire += h.Name + ": " + h.Value + "\r\n"
		}
		back, err := nats.DecodeHeadersMsg([]byte(wire + "\r\n"))
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		for name, values := range back {
			var want []string
			for _, h := range headers {
				if h.Name == name {
					want = append(want, h.Value)
				}
			}
			if !slices.Equal(values, want) {
				t.Fatalf("%q: %q is %q, want %q", data, name, values, want)
			}
		}
	})
}
