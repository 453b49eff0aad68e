package app

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// C38: fresh, missing, physical, lost; then the server as a standby, and promoted.
func TestC38_Status(t *testing.T) {
	t.Parallel()
	pg, err := sandbox.StartPostgres(t.Context(), sandbox.PostgresConfig{
		Major: sandbox.PG(t).Major(), Settings: map[string]string{"max_slot_wal_keep_size": "64MB", "max_wal_size": "32MB", "min_wal_size": "32MB"},
		Logger: sandbox.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pg.Close() })
	url := sandbox.DatabaseOn(t, pg)
	w := newWorldOn(t, url, sandbox.JetStream(t).URL())
	want := func(what, code, text string) statusReport {
		t.Helper()
		r, got := w.status("--max-lag-seconds 0")
		if got.code != exitVerdict || r.Verdict != verdictBroken || !r.has(code) {
			t.Errorf("%s: want %s: %+v", what, code, got)
		}
		if got := relay(t, w.env, "status"); got.code != exitVerdict || !strings.Contains(got.stdout, text) || got.stderr != "" {
			t.Errorf("%s: want %q: %+v", what, text, got)
		}
		return r
	}
	fresh := want("fresh", codeNoLeader, "nobody relays")
	if s := fresh.Slot; s.SafeWALBytes == nil || s.MaxRetainedBytes == nil || *s.MaxRetainedBytes != 64<<20 || s.TransactionBytes == nil {
		t.Errorf("fresh: %+v", s)
	}
	w.exec(`CREATE TABLE noise (x text)`)
	w.exec(`SELECT pg_create_physical_replication_slot('physical')`)
	env := w.env
	for _, slot := range []struct{ name, code, text string }{
		{"physical", "slot_physical", "physical slot"}, {"absent", "slot_missing", "no such slot"},
	} {
		w.env = append(slices.Clone(env), "RELAY_SLOT="+slot.name)
		if r := want(slot.name, slot.code, slot.text); r.has(codeNoLeader) || r.Pending.Events != nil || r.Lag.Seconds != nil {
			t.Errorf("%s: %+v", slot.name, r)
		}
	}
	w.env = env
	for i := range 20 { // the end of WAL and the slot's confirmed LSN are read at a time
		w.exec(`INSERT INTO noise SELECT repeat('x', 900) FROM generate_series(1, 100)`)
		if i%2 == 0 {
			w.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_insert_lsn())`, w.slot)
		}
		w.status("")
	}
	w.exec(`DO $$ BEGIN FOR i IN 1..8 LOOP INSERT INTO noise VALUES ('x'); PERFORM pg_switch_wal(); END LOOP; END $$`)
	sandbox.WaitFor(t, 30*time.Second, "the slot is lost", func() (bool, error) {
		w.exec(`INSERT INTO noise VALUES ('x')`)
		w.exec(`SELECT pg_switch_wal()`)
		w.exec(`CHECKPOINT`)
		r, got := w.status("")
		return r.has("slot_lost"), errors.New(got.stdout)
	})
	if r := want("lost", "slot_lost", "is lost"); r.has(codeNoLeader) || r.Slot.LostInSeconds != nil && *r.Slot.LostInSeconds < 0 {
		t.Errorf("lost: %+v", r)
	}
	w.must("slot drop")
	w.must("slot create")

	var data string
	if err := w.conn.QueryRow(t.Context(), `SHOW data_directory`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	_ = w.conn.Close(t.Context())
	if err := os.WriteFile(data+"/standby.signal", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data+"/standby.signal", 0o644); err != nil { //nolint:gosec // the server is another user
		t.Fatal(err)
	}
	if err := errors.Join(pg.Stop(t.Context(), sandbox.Fast), pg.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	if r := want("standby", "in_recovery", "is a standby"); r.has(codeNoLeader) {
		t.Errorf("standby: %+v", r)
	}
	w.reconnect()
	w.exec(`SELECT pg_promote()`)
	sandbox.WaitFor(t, 30*time.Second, "the promotion", func() (bool, error) {
		r, got := w.status("")
		return !r.has("in_recovery"), errors.New(got.stdout)
	})
	w.must("slot create") // some versions keep it, some do not
	w.exec(`INSERT INTO noise VALUES ('x')`)
	var lag int64
	if err := w.conn.QueryRow(t.Context(), `SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), confirmed_flush_lsn)::bigint
		FROM pg_replication_slots WHERE slot_name = $1`, w.slot).Scan(&lag); err != nil {
		t.Fatal(err)
	}
	if r := want("promoted", codeNoLeader, "nobody relays"); *r.Lag.Bytes < lag {
		t.Errorf("promoted: %d bytes, want %d or more", *r.Lag.Bytes, lag)
	}
}
