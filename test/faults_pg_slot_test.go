package test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// loseSlot writes WAL until the server has invalidated the slot, which needs a small max_slot_wal_keep_size.
func loseSlot(t *testing.T, w *harness.World) {
	t.Helper()
	w.Exec(`CREATE TABLE IF NOT EXISTS noise (text text)`)
	sandbox.WaitFor(t, harness.Limit, "the slot is lost", func() (bool, error) {
		w.Exec(`INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 20000)`)
		w.Exec(`SELECT pg_switch_wal()`)
		w.Exec(`CHECKPOINT`)
		var status *string
		err := w.Conn.QueryRow(t.Context(), `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, w.Slot).Scan(&status)
		return status != nil && *status == "lost", err
	})
}

// A slot that PostgreSQL has invalidated is never read again, and never made anew behind the operator's back.
func TestC05_SlotLostWhileStopped(t *testing.T) {
	t.Parallel()
	pg := ownPostgres(t, map[string]string{"max_slot_wal_keep_size": "32MB"})
	w := harness.New(t, harness.Config{Postgres: pg, Stream: window100ms})
	relay := w.Start()
	insert(w, 1, 1)
	w.WaitCount(1)
	w.WaitConfirmed()
	stopped(t, relay)
	insert(w, 2, 11)
	confirmed := w.ConfirmedLSN()
	loseSlot(t, w)

	refuses(t, w, 5, "slot \""+w.Slot+"\"", "is lost", confirmed.String(), "relay slot drop", "relay slot create", "must be inserted again")
	code, stdout, stderr := w.Do("status")
	if code != 3 {
		t.Errorf("status: exit %d, want 3\n%s%s", code, stdout, stderr)
	}
	says(t, "status", stdout, "lost")
	says(t, "status --json", answer(w, "status", "--json"), `"lost"`, `"slot_lost"`, `"broken"`)
	says(t, "slot list", answer(w, "slot", "list"), w.Slot, "lost")

	// The way out, as the relay gives it: a new slot, and the events inserted again.
	w.MustDo("slot", "drop")
	w.MustDo("slot", "create")
	w.Exec(`WITH old AS (DELETE FROM outbox WHERE id <> $1 RETURNING *) INSERT INTO outbox SELECT * FROM old ORDER BY id`, eventID(1))
	relay = w.Start()
	w.ExpectIDs(eventIDs(1, 11))
	stopped(t, relay)
}

// answer returns what a command prints, whatever its exit code.
func answer(w *harness.World, command ...string) string {
	_, stdout, stderr := w.Do(command...)
	return stdout + stderr
}

// A slot that is invalidated under a running relay: the server ends its walsender, and the relay finds out why.
func TestC29_SlotLostWhileRunning(t *testing.T) {
	t.Parallel()
	pg := ownPostgres(t, map[string]string{"max_slot_wal_keep_size": "32MB"})
	w := harness.New(t, harness.Config{Postgres: pg, Stream: window100ms})
	relay := w.Start("--session-timeout=30s", "--ack-timeout=30s")
	insert(w, 1, 1)
	w.WaitCount(1)
	w.WaitConfirmed()
	w.NATSProxy.Freeze() // what follows cannot be stored, so nothing moves the slot
	insert(w, 2, 4)
	confirmed := w.ConfirmedLSN()
	loseSlot(t, w)
	began := time.Now()
	exits(t, relay, 5, "is lost", confirmed.String(), "relay slot drop")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it ended %s after the loss", took)
	}
	if n := w.Count(); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// A slot that is dropped under a running relay.
func TestC29_SlotDroppedWhileRunning(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	relay := w.Start()
	insert(w, 1, 1)
	w.WaitCount(1)
	w.WaitConfirmed()
	began := time.Now()
	sandbox.WaitFor(t, harness.Limit, "the slot is dropped", func() (bool, error) {
		_, err := w.Conn.Exec(t.Context(), `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, w.Slot)
		if err == nil {
			_, err = w.Conn.Exec(t.Context(), `SELECT pg_drop_replication_slot($1)`, w.Slot)
		}
		return err == nil, err // the walsender ends a moment later
	})
	exits(t, relay, 5, "slot \""+w.Slot+"\"", "does not exist", "relay slot create")
	took := time.Since(began)
	t.Logf("the relay ended %s after the first terminate", took.Round(time.Millisecond))
	if took > 5*time.Second {
		t.Errorf("it ended after %s", took)
	}
	insert(w, 2, 2)
	refuses(t, w, 5, "does not exist")
	if n := w.Count(); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// What else stands where the slot should be. Nothing is changed on the server.
func TestSlotUnfit(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{NoSlot: true, Stream: window100ms})
	w.Exec(`CREATE PUBLICATION ` + ident(w.Publication) + ` FOR TABLE outbox WITH (publish = 'insert')`)
	other := connectTo(t, sandbox.Database(t))
	for _, c := range []struct{ name, by, text string }{
		{"missing", "", "does not exist"},
		{"other plugin", `SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, "test_decoding"},
		{"physical", `SELECT pg_create_physical_replication_slot($1)`, "physical"},
		{"other database", `other`, "belongs to database"},
	} {
		insert(w, 1, 1)
		conn, sql := w.Conn, c.by
		if sql == "other" {
			conn, sql = other, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`
		}
		if sql != "" {
			if _, err := conn.Exec(t.Context(), sql, w.Slot); err != nil {
				if strings.Contains(err.Error(), "test_decoding") {
					continue // some builds come without it
				}
				t.Fatal(err)
			}
		}
		t.Log(c.name)
		refuses(t, w, 5, w.Slot, c.text, "relay slot create")
		if code, stdout, _ := w.Do("status"); code != 3 {
			t.Errorf("%s: status: exit %d, want 3\n%s", c.name, code, stdout)
		}
		if sql != "" {
			if _, err := conn.Exec(t.Context(), `SELECT pg_drop_replication_slot($1)`, w.Slot); err != nil {
				t.Fatal(err)
			}
		}
		w.Exec(`DELETE FROM outbox`)
	}
	if n := w.Count(); n != 0 {
		t.Errorf("%d messages", n)
	}
}
