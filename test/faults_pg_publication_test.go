package test

import (
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/test/harness"
)

// unpublished is a way in which the outbox table leaves its publication, and what the relay has to say about it.
type unpublished struct {
	name  string
	by    func(w *harness.World) []string // statements
	texts []string
}

func unpublishedWays() []unpublished {
	return []unpublished{
		{
			"table made again",
			func(*harness.World) []string {
				return []string{
					`ALTER TABLE outbox RENAME TO outbox_old`, `CREATE TABLE outbox (LIKE outbox_old INCLUDING ALL)`, `DROP TABLE outbox_old`,
				}
			},
			[]string{"does not hold the table public.outbox as it is now", "ADD TABLE", "must be inserted again"},
		},
		{
			"table taken out",
			func(w *harness.World) []string {
				return []string{`ALTER PUBLICATION ` + ident(w.Publication) + ` DROP TABLE outbox`}
			},
			[]string{"does not hold the table public.outbox", "ADD TABLE", "must be inserted again"},
		},
		{
			"publication dropped",
			func(w *harness.World) []string { return []string{`DROP PUBLICATION ` + ident(w.Publication)} },
			[]string{"publication", "does not exist although the slot does", "relay slot drop", "relay slot create"},
		},
	}
}

// unpublish does it in one transaction.
func (u unpublished) unpublish(t *testing.T, w *harness.World) {
	t.Helper()
	tx, err := w.Conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range u.by(w) {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A relay does not begin to stream past an outbox that is not published, and mends nothing by itself.
func TestC06_UnpublishedAtStart(t *testing.T) {
	t.Parallel()
	for _, way := range unpublishedWays() {
		w := harness.New(t, harness.Config{Stream: window100ms})
		insert(w, 1, 2)
		relay := w.Start()
		w.WaitCount(2)
		w.WaitConfirmed()
		stopped(t, relay)
		way.unpublish(t, w)
		insert(w, 3, 5)
		t.Log(way.name)
		refuses(t, w, 6, way.texts...)
		code, stdout, stderr := w.Do("status")
		if code != 3 {
			t.Errorf("status: exit %d, want 3\n%s%s", code, stdout, stderr)
		}
		says(t, "status", stdout+stderr, way.texts[0])
	}

	// The way out: after ADD TABLE what is inserted again is delivered, and only that.
	w := harness.New(t, harness.Config{Stream: window100ms})
	unpublishedWays()[0].unpublish(t, w)
	insert(w, 1, 3)
	refuses(t, w, 6)
	w.Exec(`ALTER PUBLICATION ` + ident(w.Publication) + ` ADD TABLE "public"."outbox"`)
	relay := w.Start()
	leads(t, relay)
	w.WaitConfirmed()
	insert(w, 4, 4)
	w.Exec(`WITH old AS (DELETE FROM outbox WHERE id <> $1 RETURNING *) INSERT INTO outbox SELECT * FROM old ORDER BY id`, eventID(4))
	w.ExpectIDs(append(eventIDs(4, 4), eventIDs(1, 3)...))
	stopped(t, relay)

	w.Exec(`DROP TABLE outbox`)
	refuses(t, w, 6, "table public.outbox", "does not exist", "relay outbox create")
}

// The look at the catalogue is repeated for every session.
func TestC06_UnpublishedAtReconnect(t *testing.T) {
	t.Parallel()
	for _, way := range unpublishedWays() {
		w := harness.New(t, harness.Config{Stream: window100ms})
		relay := w.Start()
		insert(w, 1, 2)
		w.WaitCount(2)
		w.WaitConfirmed()
		way.unpublish(t, w)
		before := catalogue(t, w.Conn, w.Slot)
		w.PGProxy.Cut()
		began := time.Now()
		t.Log(way.name)
		exits(t, relay, 6, way.texts...)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it ended after %s", took)
		}
		if after := catalogue(t, w.Conn, w.Slot); after != before {
			t.Errorf("the catalogue was\n%s\nand is\n%s", before, after)
		}
	}
}

// A relay whose session lives on finds out within 30 s: the server tells it nothing, or not why.
func TestC06_UnpublishedWhileRunning(t *testing.T) {
	t.Parallel()
	const every = 30 * time.Second // the rhythm of looks at the catalogue
	ways := unpublishedWays()
	worlds, relays := make([]*harness.World, len(ways)), make([]*harness.Relay, len(ways))
	for i := range ways { // all at once: one wait is enough
		worlds[i] = harness.New(t, harness.Config{Stream: window100ms})
		relays[i] = worlds[i].Start()
		insert(worlds[i], 1, 2)
		worlds[i].WaitCount(2)
		worlds[i].WaitConfirmed()
	}
	began := time.Now()
	for i, way := range ways {
		way.unpublish(t, worlds[i])
		insert(worlds[i], 3, 5)
	}
	for i, way := range ways {
		exits(t, relays[i], 6, way.texts...)
		took := time.Since(began)
		t.Logf("%s: found after %s at most", way.name, took.Round(time.Millisecond))
		if took > every+2*time.Second {
			t.Errorf("%s: found after %s", way.name, took)
		}
		if n := worlds[i].Count(); n != 2 {
			t.Errorf("%s: %d messages", way.name, n)
		}
	}
}

// While publishing is paused nothing else would tell, so the look is repeated every 5 s.
func TestC06_UnpublishedWhilePaused(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	relay := w.Start("--ack-timeout=1s", "--drain-timeout=1s")
	insert(w, 1, 2)
	w.WaitCount(2)
	w.NATSProxy.Freeze()
	insert(w, 3, 3)
	relay.WaitLog("publishing is paused")
	way := unpublishedWays()[1]
	way.unpublish(t, w)
	began := time.Now()
	exits(t, relay, 6, way.texts...)
	if took := time.Since(began); took > 7*time.Second {
		t.Errorf("it ended after %s", took)
	}
	w.NATSProxy.Thaw()
}
