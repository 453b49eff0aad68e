package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// Each supported version of PostgreSQL, in one short story: where they differ, and what must not differ.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, major := range sandbox.Majors(t) {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			pg := postgresOf(t, major, map[string]string{"max_slot_wal_keep_size": "64MB"})
			v := &version{t: t, pg: pg, w: harness.New(t, harness.Config{Postgres: pg, Stream: window100ms})}
			v.rollbacks()
			v.killedBeforeConfirm()
			v.takeover()
			v.otherTables()
			v.failoverSlot()
			v.slotIdle()
			v.slotLost()
			v.publicationDropped()
		})
	}
}

// version is the story of one version.
type version struct {
	t    *testing.T
	pg   *sandbox.Postgres
	w    *harness.World
	last int // event that was committed
}

// commit commits n events, each in a transaction of its own.
func (v *version) commit(n int) {
	v.t.Helper()
	insert(v.w, v.last+1, v.last+n)
	v.last += n
}

// balance waits until all committed events are in the stream, and nothing else.
func (v *version) balance() {
	v.t.Helper()
	v.w.ExpectIDs(eventIDs(1, v.last))
	v.w.WaitConfirmed()
}

// rollbacks: whole transactions, and parts of one.
func (v *version) rollbacks() {
	v.t.Helper()
	relay := v.w.Start()
	v.commit(2)
	for i, sql := range []string{
		`BEGIN; %[1]s; ROLLBACK`,
		`BEGIN; %[2]s; SAVEPOINT a; %[1]s; ROLLBACK TO a; COMMIT`,
		`BEGIN; SAVEPOINT a; %[1]s; ROLLBACK TO a; %[2]s; RELEASE a; COMMIT`,
	} {
		write := func(id string) string {
			return `INSERT INTO outbox (id, topic, payload) VALUES ('` + id + `', 'order.created', '{}')`
		}
		if _, err := v.w.Conn.PgConn().Exec(v.t.Context(), fmt.Sprintf(sql, write(eventID(1000+i)), write(eventID(v.last+1)))).ReadAll(); err != nil {
			v.t.Fatal(err)
		}
		if strings.Contains(sql, "%[2]s") {
			v.last++
		}
	}
	v.commit(1)
	v.balance()
	stopped(v.t, relay)
}

// killedBeforeConfirm: the events are stored and PostgreSQL does not know. They are sent again, and found in the stream.
func (v *version) killedBeforeConfirm() {
	v.t.Helper()
	relay := v.w.Start()
	leads(v.t, relay)
	v.w.WaitConfirmed()
	held := v.w.PGProxy.HoldConfirmAbove(v.w.ConfirmedLSN())
	v.commit(5)
	select {
	case <-held:
	case <-time.After(harness.Limit):
		v.t.Fatal("nothing was confirmed")
	}
	v.w.WaitCount(v.last)
	relay.Crash()
	v.w.PGProxy.OnPg(nil)
	v.w.PGProxy.Cut() // what was held is gone with the machine
	relay = v.w.Start()
	v.commit(1)
	v.balance()
	stopped(v.t, relay)
}

// takeover: a standby leads soon after a kill -9.
func (v *version) takeover() {
	v.t.Helper()
	leader := v.w.Start()
	leads(v.t, leader)
	standby := v.w.Start()
	standby.WaitLog("standing by")
	v.commit(2)
	began := time.Now()
	leader.Crash()
	v.commit(2)
	leads(v.t, standby)
	took := time.Since(began)
	v.t.Logf("takeover after %s", took.Round(time.Millisecond))
	if took > 4*time.Second {
		v.t.Errorf("takeover after %s", took)
	}
	v.balance()
	stopped(v.t, standby)
}

// otherTables: an idle outbox does not hold the WAL of its busy neighbours. Version 14 sends each of their transactions
// empty, later ones only keepalives.
func (v *version) otherTables() {
	v.t.Helper()
	neighbours(v.w)
	relay := v.w.Start()
	leads(v.t, relay)
	v.w.Exec(`DO $$ BEGIN FOR i IN 1..3000 LOOP INSERT INTO neighbour VALUES ('x'); COMMIT; END LOOP; END $$`)
	v.w.WaitConfirmed()
	stopped(v.t, relay)
	if n := v.w.Count(); n != v.last {
		v.t.Errorf("%d messages, want %d", n, v.last)
	}
}

// failoverSlot: from 17 on a slot can be one that a standby keeps a copy of.
func (v *version) failoverSlot() {
	v.t.Helper()
	const name = "failover_slot"
	code, stdout, stderr := v.w.Do("slot", "create", "--slot="+name, "--failover")
	if v.pg.Major() < 17 {
		if code == 0 || !strings.Contains(stderr, "17") {
			v.t.Errorf("slot create --failover: exit %d\n%s%s", code, stdout, stderr)
		}
		return
	}
	var failover bool
	err := v.w.Conn.QueryRow(v.t.Context(), `SELECT failover FROM pg_replication_slots WHERE slot_name = $1`, name).Scan(&failover)
	if code != 0 || err != nil || !failover {
		v.t.Fatalf("slot create --failover: exit %d, failover %t, %v\n%s%s", code, failover, err, stdout, stderr)
	}
	relay := v.w.Start("--slot=" + name)
	leads(v.t, relay)
	stopped(v.t, relay)
	v.w.MustDo("slot", "drop", "--slot="+name)
}

// slotIdle: from 18 on the server can be told to give up a slot that nobody reads.
func (v *version) slotIdle() {
	v.t.Helper()
	const setting = "idle_replication_slot_timeout"
	if v.pg.Major() < 18 {
		return
	}
	if err := v.pg.Set(v.t.Context(), setting, "1s"); err != nil {
		v.t.Fatal(err)
	}
	sandbox.WaitFor(v.t, harness.Limit, "the slot is lost", func() (bool, error) {
		v.w.Exec(`CHECKPOINT`)
		var status string
		err := v.w.Conn.QueryRow(v.t.Context(), `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, v.w.Slot).Scan(&status)
		return status == "lost", err
	})
	refuses(v.t, v.w, 5, "is lost", "idle_timeout", "relay slot drop")
	if err := v.pg.Set(v.t.Context(), setting, ""); err != nil {
		v.t.Fatal(err)
	}
	v.w.MustDo("slot", "drop")
	v.w.MustDo("slot", "create")
}

// slotLost: the relay stops, and the way out that it gives works.
func (v *version) slotLost() {
	v.t.Helper()
	loseSlot(v.t, v.w)
	refuses(v.t, v.w, 5, "is lost", "relay slot drop")
	says(v.t, "status", answer(v.w, "status"), "lost")
	v.w.MustDo("slot", "drop")
	v.w.MustDo("slot", "create")
	relay := v.w.Start()
	v.commit(2)
	v.balance()
	stopped(v.t, relay)
}

// publicationDropped: the server fails at the next event up to 17, and passes over it from 18 on. The relay stops either way.
func (v *version) publicationDropped() {
	v.t.Helper()
	relay := v.w.Start()
	leads(v.t, relay)
	v.w.Exec(`DROP PUBLICATION ` + ident(v.w.Publication))
	insert(v.w, v.last+1, v.last+1)
	exits(v.t, relay, 6, "does not exist although the slot does", "relay slot create")
	refuses(v.t, v.w, 6, "does not exist although the slot does")
	if n := v.w.Count(); n != v.last {
		v.t.Errorf("%d messages, want %d", n, v.last)
	}
}
