package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// insertOld commits the events from first to last at once, as if they had been written so many hours ago.
func insertOld(w *harness.World, first, last, hours int) {
	w.Exec(`INSERT INTO outbox (id, topic, payload, created_at) SELECT `+idSQL+`, 'order.created', '{}', now() - $3 * interval '1 hour'
		FROM generate_series($1::int, $2::int) i`, first, last, hours)
}

// kept returns the ids that are still in the outbox.
func kept(w *harness.World) []string {
	rows, err := w.Conn.Query(context.Background(), `SELECT id::text FROM outbox ORDER BY id`)
	if err != nil {
		return []string{err.Error()}
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return []string{err.Error()}
	}
	return ids
}

func expectKept(t *testing.T, w *harness.World, want ...string) {
	t.Helper()
	if got := kept(w); !slices.Equal(got, want) {
		t.Errorf("the outbox has %d rows, want %d: %v, want %v", len(got), len(want), got, want)
	}
}

// Only what is old and delivered goes; what is not delivered stays however old it is.
func TestPrune(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	relay := w.Start()
	insertOld(w, 1, 10, 48)
	insert(w, 11, 12)
	w.WaitCount(12)
	if out := w.MustDo("outbox", "prune", "--older-than=24h", "--dry-run"); !strings.HasPrefix(out, "10 rows older than 1 d would be deleted") {
		t.Error(out)
	}
	expectKept(t, w, eventIDs(1, 12)...)
	if out := w.MustDo("outbox", "prune", "--older-than=24h"); !strings.HasPrefix(out, "10 rows older than 1 d deleted") {
		t.Error(out)
	}
	expectKept(t, w, eventIDs(11, 12)...)

	stopped(t, relay)
	insertOld(w, 13, 14, 48)
	code, _, stderr := w.Do("outbox", "prune", "--older-than=24h", "--wait=300ms")
	if code != 1 || !strings.Contains(stderr, "the relay has not delivered everything yet") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	expectKept(t, w, eventIDs(11, 14)...)
	w.Start()
	w.MustDo("outbox", "prune", "--older-than=24h") // waits for the relay
	expectKept(t, w, eventIDs(11, 12)...)
	w.ExpectIDs(eventIDs(1, 14)) // no delete has become an event
}

// A transaction that began before a pass and commits during it brings rows that are old and not delivered.
func TestPruneKeepsWhatCommitsLate(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	w.Start()
	insertOld(w, 1, 5, 48)
	w.WaitCount(5)
	late, err := connect(t, w).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(t.Context(), `INSERT INTO outbox (id, topic, payload, created_at) VALUES ($1, 'order.created', '{}', now() - interval '3 days')`, eventID(6)); err != nil {
		t.Fatal(err)
	}
	insertOld(w, 7, 8, 48) // younger than the open transaction: nothing is certain about them
	w.WaitCount(7)
	w.MustDo("outbox", "prune", "--older-than=24h")
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectKept(t, w, eventIDs(6, 8)...)
	w.WaitCount(8)
	w.MustDo("outbox", "prune", "--older-than=24h")
	expectKept(t, w)
}

// Rows from before the slot were never sent: they stay, and the answer says how to send them.
func TestPruneKeepsWhatWasNeverSent(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms, NoSlot: true})
	insertOld(w, 1, 3, 48)
	w.MustDo("slot", "create")
	insertOld(w, 4, 5, 48)
	w.Start()
	w.WaitCount(2)
	if out := w.MustDo("outbox", "prune", "--older-than=24h"); !strings.Contains(out, "2 rows older than") || !strings.Contains(out, "3 rows stay: older than publication") {
		t.Error(out)
	}
	expectKept(t, w, eventIDs(1, 3)...)
}

func TestPruneRefuses(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: func(c *jetstream.StreamConfig) { c.Duplicates = time.Hour }})
	w.Exec(`CREATE TABLE elsewhere (id int); CREATE PUBLICATION other FOR TABLE elsewhere`)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no age":           {nil, 2, "--older-than"},
		"a short age":      {[]string{"--older-than=30m"}, 1, "rows must stay for the duplicate window"},
		"no slot":          {[]string{"--older-than=2h", "--slot=nobody"}, 1, "relay slot create"},
		"not published":    {[]string{"--older-than=2h", "--publication=other"}, 1, "no such publication with this table"},
		"no publication":   {[]string{"--older-than=2h", "--publication=nobody"}, 1, "there is no such publication with this table"},
		"no table":         {[]string{"--older-than=2h", "--table=nothing"}, 1, "there is no such table"},
		"an age of no use": {[]string{"--older-than=soon"}, 2, "want a time with its unit"},
	} {
		code, _, stderr := w.Do(append([]string{"outbox", "prune", "--wait=0s"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit %d, %s", name, code, stderr)
		}
	}
}

// A relay with --retention deletes by itself.
func TestRunRetention(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	insertOld(w, 1, 5, 48)
	insert(w, 6, 6)
	relay := w.Start("--retention=24h")
	relay.WaitLog(`msg="old events are deleted" rows=5`)
	expectKept(t, w, eventID(6))
}

// A table that is partitioned by day: made by the command, relayed, and emptied by the day, while writers go on.
func TestPartitionsByDay(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms, NoSlot: true, DDL: []string{"SELECT 1"}})
	out := w.MustDo("outbox", "create", "--partition-by=day")
	if !strings.Contains(out, "15 partitions made") {
		t.Error(out)
	}
	if out := w.MustDo("outbox", "create", "--partition-by=day"); strings.Contains(out, "made") {
		t.Errorf("again: %s", out)
	}
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for ago := 1; ago <= 3; ago++ {
		day := today.AddDate(0, 0, -ago)
		w.Exec(fmt.Sprintf(`CREATE TABLE outbox_p%s PARTITION OF outbox FOR VALUES FROM ('%s') TO ('%s')`, day.Format("20060102"),
			day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)))
	}
	w.MustDo("slot", "create")
	relay := w.Start()
	insertOld(w, 1, 100, 72)
	insertOld(w, 101, 200, 48)
	w.WaitCount(200)

	var slowest time.Duration
	var stop atomic.Bool
	var writers sync.WaitGroup
	conn := connect(t, w)
	written := 200
	writers.Go(func() {
		for !stop.Load() {
			began := time.Now()
			if _, err := conn.Exec(t.Context(), insertSQL, eventID(written+1)); err != nil {
				t.Error(err)
				return
			}
			written++
			slowest = max(slowest, time.Since(began))
		}
	})
	out = w.MustDo("outbox", "prune", "--older-than=49h")
	stop.Store(true)
	writers.Wait()
	if n := strings.Count(out, " dropped"); n < 1 || strings.Contains(out, "stays") {
		t.Error(out)
	}
	var tables []string
	rows, err := w.Conn.Query(t.Context(), `SELECT relname::text FROM pg_class WHERE relname LIKE 'outbox_p2%' AND relkind = 'r' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	if tables, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		t.Fatal(err)
	}
	if gone := "outbox_p" + today.AddDate(0, 0, -3).Format("20060102"); slices.Contains(tables, gone) {
		t.Errorf("%s is there: %v", gone, tables)
	}
	t.Logf("%d rows were written meanwhile, the slowest in %s", written-200, slowest)
	if slowest > 2*time.Second {
		t.Errorf("a writer waited for %s", slowest)
	}
	w.ExpectIDs(eventIDs(1, written))
	stopped(t, relay)
}

// What an earlier pass has left half done is finished: a partition that is half detached, and one that is detached and not
// dropped. One that somebody wrote into at the last moment is delivered first.
func TestPartitionsLeftOver(t *testing.T) {
	t.Parallel()
	for _, pg := range sandbox.Majors(t) {
		t.Run(fmt.Sprint(pg), func(t *testing.T) {
			t.Parallel()
			server := postgresOf(t, pg, nil)
			w := harness.New(t, harness.Config{Postgres: server, Stream: window100ms, NoSlot: true, DDL: []string{
				`CREATE TABLE outbox (id uuid, topic text NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now()) PARTITION BY RANGE (created_at)`,
				`CREATE TABLE old PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO ('2020-01-02')`,
				`CREATE TABLE older PARTITION OF outbox FOR VALUES FROM ('2019-01-01') TO ('2019-01-02')`,
				`CREATE TABLE half PARTITION OF outbox FOR VALUES FROM ('2018-01-01') TO ('2018-01-02')`,
				`CREATE TABLE now PARTITION OF outbox FOR VALUES FROM ('2021-01-01') TO (MAXVALUE)`,
			}})
			w.MustDo("slot", "create")
			for i, day := range []string{"2020-01-01", "2019-01-01", "2018-01-01"} {
				w.Exec(`INSERT INTO outbox (id, topic, payload, created_at) VALUES ($1, 'order.created', '{}', $2)`, eventID(i+1), day)
			}
			// No relay runs, and both partitions leave the table with what they have.
			w.Exec(`COMMENT ON TABLE old IS 'relay: detached from the outbox, to be dropped'`)
			w.Exec(`ALTER TABLE outbox DETACH PARTITION old CONCURRENTLY`)
			halfDetach(t, w, "half")
			if code, _, stderr := w.Do("outbox", "prune", "--older-than=24h", "--wait=0s"); code != 1 || !strings.Contains(stderr, "has not delivered") {
				t.Errorf("exit %d: %s", code, stderr)
			}
			w.Start()
			w.ExpectIDs(eventIDs(1, 3)) // of detached tables as well: the row was published when it was written
			out := w.MustDo("outbox", "prune", "--older-than=24h")
			for _, name := range []string{"old", "older", "half"} {
				if !strings.Contains(out, "partition public."+name+" dropped") {
					t.Errorf("%s stays: %s", name, out)
				}
			}
		})
	}
}

// halfDetach leaves a partition as a DETACH CONCURRENTLY of a pass leaves it that is interrupted while it waits for others.
func halfDetach(t *testing.T, w *harness.World, name string) {
	t.Helper()
	reader, err := connect(t, w).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(t.Context(), `SELECT count(*) FROM outbox`); err != nil {
		t.Fatal(err)
	}
	w.Exec(`COMMENT ON TABLE ` + name + ` IS 'relay: detached from the outbox, to be dropped'`)
	w.Exec(`SET lock_timeout = '100ms'`)
	if _, err := w.Conn.Exec(t.Context(), `ALTER TABLE outbox DETACH PARTITION `+name+` CONCURRENTLY`); err == nil {
		t.Fatal("it did not wait for the reader")
	}
	w.Exec(`RESET lock_timeout`)
	var pending bool
	if err := w.Conn.QueryRow(t.Context(), `SELECT inhdetachpending FROM pg_inherits WHERE inhrelid = $1::regclass`, name).Scan(&pending); err != nil || !pending {
		t.Fatalf("half detached: %t, %v", pending, err)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}
