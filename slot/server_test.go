package slot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// server starts a PostgreSQL of the test's own.
func server(t *testing.T, settings map[string]string) *sandbox.Postgres {
	t.Helper()
	major := sandbox.PG(t).Major()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	pg, err := sandbox.StartPostgres(ctx, sandbox.PostgresConfig{Major: major, Settings: settings, Logger: sandbox.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	return pg
}

func TestC05_LostSlot(t *testing.T) {
	t.Parallel()
	pg := server(t, map[string]string{"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB"})
	b := bedAt(t, sandbox.DatabaseOn(t, pg))
	b.table()
	b.create()
	b.insert(10)
	s := b.inspect()
	if s.MaxSlotWALKeepBytes == nil || *s.MaxSlotWALKeepBytes != 1<<20 || s.Slot.SafeWALBytes == nil {
		t.Errorf("keep %v, slot %+v", s.MaxSlotWALKeepBytes, s.Slot)
	}
	b.exec(`CREATE TABLE noise AS SELECT repeat('x', 900) AS x FROM generate_series(1, 10)`)
	unreserved := false
	sandbox.WaitFor(t, testLimit, "the slot to be lost", func() (bool, error) {
		b.exec(`SELECT pg_switch_wal()`, `INSERT INTO noise SELECT x FROM noise LIMIT 100`)
		for _, p := range b.inspect().Problems(b.cfg) {
			unreserved = unreserved || p.Code == CodeSlotUnreserved
		}
		b.exec(`CHECKPOINT`)
		return b.inspect().Slot.Lost(), nil
	})
	if !unreserved {
		t.Error("no warning before the loss")
	}
	b.wantProblems("!slot_lost")
	p := b.inspect().Problems(b.cfg)[0]
	if p.Kind != KindSlot || !strings.Contains(p.Text, b.inspect().Slot.ConfirmedFlushLSN.String()) || !strings.Contains(p.Fix, "relay slot drop") {
		t.Errorf("problem %+v", p)
	}
	slots, err := List(b.ctx(), b.conn)
	if err != nil || len(slots) != 1 || !slots[0].Lost() {
		t.Errorf("list = %+v, %v", slots, err)
	}
	_, err = Create(b.ctx(), b.cc, b.cfg, CreateOptions{})
	wantMismatch(t, err, CodeSlotLost)
	if err := Drop(b.ctx(), b.conn, b.cfg, DropOptions{}); err != nil {
		t.Error(err)
	}
}

func TestC36_WALLevel(t *testing.T) {
	t.Parallel()
	b := bedAt(t, sandbox.DatabaseOn(t, server(t, map[string]string{"wal_level": "replica"})))
	b.table()
	_, err := Create(b.ctx(), b.cc, b.cfg, CreateOptions{})
	wantMismatch(t, err, CodeWALLevel)
	if permanent, advice := Classify(err); !permanent || !strings.Contains(advice, "wal_level") {
		t.Errorf("%v, %q", permanent, advice)
	}
	b.wantNothingLeft()
}

func TestC36_Limits(t *testing.T) {
	t.Parallel()
	b := bedAt(t, sandbox.DatabaseOn(t, server(t, map[string]string{"max_replication_slots": "1", "max_wal_senders": "1"})))
	b.table()
	b.create()
	second := *b
	second.cfg.Slot, second.cfg.Publication = "second", "second"
	_, err := Create(b.ctx(), b.cc, second.cfg, CreateOptions{})
	if permanent, advice := Classify(err); sqlState(err) != "53400" || !permanent || !strings.Contains(advice, "max_replication_slots") {
		t.Errorf("no slot left: %v: %v, %q", err, permanent, advice)
	}
	second.wantNothingLeft()
	b.hold()
	_, err = Create(b.ctx(), b.cc, second.cfg, CreateOptions{})
	if permanent, advice := Classify(err); sqlState(err) != "53300" || permanent || !strings.Contains(advice, "max_wal_senders") {
		t.Errorf("no walsender left: %v: %v, %q", err, permanent, advice)
	}
	second.wantNothingLeft()
}

// A server becomes a standby of nobody by a signal file, and a primary again by promotion: what counts here is which
// functions it allows.
func TestC38_StandbyAndPromoted(t *testing.T) {
	t.Parallel()
	pg := server(t, nil)
	url := sandbox.DatabaseOn(t, pg)
	b := bedAt(t, url)
	b.table()
	b.create()
	ctx := b.ctx()
	var data string
	if err := b.conn.QueryRow(ctx, `SHOW data_directory`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	restart := func() *bed {
		t.Helper()
		if err := errors.Join(pg.Stop(b.ctx(), sandbox.Fast), pg.Start(b.ctx())); err != nil {
			t.Fatal(err)
		}
		again := bedAt(t, url)
		again.cfg = b.cfg
		return again
	}
	if err := os.WriteFile(data+"/standby.signal", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	standby := restart()
	s := standby.inspect()
	if !s.InRecovery || s.FlushLSN == nil {
		t.Errorf("state = %+v", s)
	}
	standby.wantProblems("!in_recovery")
	if _, err := List(ctx, standby.conn); err != nil {
		t.Errorf("list on a standby: %v", err)
	}
	_, err := Create(ctx, standby.cc, standby.cfg, CreateOptions{})
	wantMismatch(t, err, CodeInRecovery)

	standby.exec(`SELECT pg_promote()`)
	sandbox.WaitFor(t, testLimit, "the promotion", func() (bool, error) { return !standby.inspect().InRecovery, nil })
	standby.table()
	if standby.inspect().Slot == nil { // some versions keep it, some do not
		standby.create()
	}
	standby.insert(100)
	s = standby.inspect()
	want := standby.count(`SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), confirmed_flush_lsn)::bigint
		FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
	if s.Slot.UnconfirmedBytes == nil || *s.Slot.UnconfirmedBytes == 0 || *s.Slot.UnconfirmedBytes > int64(want) {
		t.Errorf("unconfirmed = %v, want %d", s.Slot.UnconfirmedBytes, want)
	}
}

func TestC38_LagIsNeverNegative(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.create()
	writer := connect(t, b.cc)
	for i := range 30 {
		_, err := writer.Exec(b.ctx(), fmt.Sprintf(`INSERT INTO outbox (id, topic, payload) SELECT gen_random_uuid(), 't', '{}'
			FROM generate_series(1, %d)`, 10+i))
		if err != nil {
			t.Fatal(err)
		}
		b.exec(`SELECT pg_replication_slot_advance('` + b.cfg.Slot + `', pg_current_wal_insert_lsn())`)
		if s := b.inspect().Slot; *s.UnconfirmedBytes < 0 || *s.RetainedBytes < *s.UnconfirmedBytes {
			t.Fatalf("unconfirmed %s, retained %s", strconv.FormatInt(*s.UnconfirmedBytes, 10), strconv.FormatInt(*s.RetainedBytes, 10))
		}
	}
}
