package test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// A JSON payload arrives as PostgreSQL itself would show it, byte for byte.
func TestC17_JSONIsNotTouched(t *testing.T) {
	t.Parallel()
	values := []string{
		`12345678901234567890`, `0.1000000000000000055511151231257827`, `1e400`, `-0`, `1.10`, `true`, `null`, `""`,
		`{"b":1,"a":2,"a":3}`, `{ "b" :1,` + "\n\t" + `"a":  [ ] }`, `"<&>"`, `"\u003c\u0026"`, `"😀"`, `"\ud83d\ude00"`,
		"\"a\u2028b\"", `"\"\\\/\b\f\n\r\t"`, `"é"`, `"` + strings.Repeat("x", 10_000) + `"`,
	}
	for _, kind := range []string{"json", "jsonb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := harness.New(t, harness.Config{Stream: window100ms, DDL: []string{
				`CREATE TABLE outbox (id uuid PRIMARY KEY, topic text NOT NULL, payload ` + kind + ` NOT NULL)`,
			}})
			watch := w.Watch()
			defer watch.Stop()
			relay := w.Start()
			values := values
			if kind == "json" {
				values = append(values[:len(values):len(values)], `"\u0000"`) // jsonb refuses it
			}
			for i, value := range values {
				w.Exec(`INSERT INTO outbox VALUES ($1, 'order.created', $2::text::`+kind+`)`, eventID(i+1), value)
			}
			w.ExpectIDs(eventIDs(1, len(values)))
			for i, m := range w.Messages() {
				var want string
				if err := w.Conn.QueryRow(t.Context(), `SELECT payload::text FROM outbox WHERE id = $1`, eventID(i+1)).Scan(&want); err != nil {
					t.Fatal(err)
				}
				if m.Body != want {
					t.Errorf("%s arrives as %q, PostgreSQL has %q", values[i], m.Body, want)
				}
			}
			w.WaitConfirmed()
			stopped(t, relay)
			oneHolder(t, watch)
		})
	}
}

// A bytea payload arrives as its bytes, whatever bytea_output says.
func TestC31_BinaryPayload(t *testing.T) {
	t.Parallel()
	random := make([]byte, 100_000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	payloads := [][]byte{{0x00, 0xff, 0x0a, 0x0d}, {}, random, []byte(`\x00`), []byte(`\\001'"`)}
	for _, output := range []string{"hex", "escape"} {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			w := harness.New(t, harness.Config{Stream: window100ms, DDL: []string{
				`CREATE TABLE outbox (id uuid PRIMARY KEY, topic text NOT NULL, payload bytea NOT NULL)`,
				`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET bytea_output = ` + output + `', current_database()); END $$`,
			}})
			watch := w.Watch()
			defer watch.Stop()
			relay := w.Start()
			for i, payload := range payloads {
				w.Exec(`INSERT INTO outbox VALUES ($1, 'order.created', $2)`, eventID(i+1), payload)
			}
			w.ExpectIDs(eventIDs(1, len(payloads)))
			for i, m := range w.Messages() {
				if !bytes.Equal([]byte(m.Body), payloads[i]) {
					t.Errorf("payload %d of %d bytes arrives as %d bytes: %.40q", i, len(payloads[i]), len(m.Body), m.Body)
				}
			}
			w.WaitConfirmed()
			stopped(t, relay)
			oneHolder(t, watch)
		})
	}
}

// Nothing happens for several session timeouts: no reconnect, no line in the log, and the next event arrives at once. Scaled:
// a session timeout of 1 s and 20 status intervals of a third of it, instead of 10 s and 3 minutes.
func TestC28_IdleForSeveralTimeouts(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	var updates atomic.Int32
	w.PGProxy.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		if m.IsStatusUpdate() {
			updates.Add(1)
		}
		return sandbox.Forward
	})
	relay := w.Start("--session-timeout=1s")
	relay.WaitLog("to=publishing")
	began := time.Now()
	sandbox.WaitFor(t, harness.Limit, "20 status updates, and 5 s", func() (bool, error) {
		return updates.Load() >= 20 && time.Since(began) > 5*time.Second, nil
	})
	began = time.Now()
	insert(w, 1, 1)
	w.WaitCount(1)
	if took := time.Since(began); took > time.Second {
		t.Errorf("the event arrived after %s", took)
	}
	w.ExpectIDs(eventIDs(1, 1))
	w.WaitConfirmed()
	stopped(t, relay)
	for _, level := range []string{"level=WARN", "level=ERROR"} {
		if strings.Contains(relay.Log(), level) {
			t.Errorf("the log has a line of %s", level)
		}
	}
	starts(t, w, 1)
	oneHolder(t, watch)
}
