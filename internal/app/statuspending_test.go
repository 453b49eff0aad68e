package app

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// Without a leader to ask, what waits is estimated from the rows if an index serves that, and said to be an estimate.
func TestStatusEstimates(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"one table": nil, "partitions": {"--partition-by=day"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, flags...)
			w.relayed(3)
			w.insert(5000)
			w.exec(`ANALYZE outbox`)
			r, got := w.status("")
			if r.Pending.Events != nil || !r.has(codePendingUnknown) || !strings.Contains(got.stdout, "no index on created_at") || r.Lag.Seconds != nil {
				t.Errorf("without an index: %s", got.stdout)
			}
			w.exec(`CREATE INDEX ON outbox (created_at)`)
			w.reconnect() // a session that ends has its scans counted
			before, used := w.scans()
			r, got = w.status("")
			if r.Pending.Events == nil || *r.Pending.Events != 5000 || *r.Pending.Exact || *r.Pending.Source != pendingRows ||
				!r.has(codePendingEstimated) || r.Pending.OldestAgeSeconds != nil {
				t.Errorf("with an index: %s", got.stdout)
			}
			if text := relay(t, w.env, "status"); !strings.Contains(text.stdout, "~ 5 000 events") {
				t.Errorf("%s", text.stdout)
			}
			sandbox.WaitFor(t, 20*time.Second, "PostgreSQL counts the scans", func() (bool, error) {
				_, now := w.scans()
				return now > used, nil
			})
			if after, _ := w.scans(); after > before {
				t.Errorf("%d sequential scans of the outbox", after-before)
			}
		})
	}
}

// C51: nonsense in rows, and rows that may not be read, are no error.
func TestC51_StatusOfNonsense(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.relayed(1)
	w.exec(`CREATE INDEX ON outbox (created_at)`)
	for _, at := range []string{"infinity", "-infinity", "2999-01-01", "1999-01-01"} {
		w.exec(`INSERT INTO outbox (id, topic, payload, created_at) VALUES (gen_random_uuid(), 'x', '{}', '` + at + `')`)
	}
	if r, got := w.status(""); r.Pending.Events == nil || *r.Pending.Events != 0 || *r.Pending.Exact || r.Pending.OldestAgeSeconds != nil || r.Lag.Seconds != nil {
		t.Errorf("%s", got.stdout)
	}
	role := sandbox.Name(t)
	w.exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'pw'`)
	t.Cleanup(func() { _, _ = w.conn.Exec(context.WithoutCancel(t.Context()), `DROP ROLE `+role) })
	database, err := url.Parse(w.database)
	if err != nil {
		t.Fatal(err)
	}
	database.User = url.UserPassword(role, "pw")
	w.env = append(w.env, "DATABASE_URL="+database.String())
	if r, got := w.status(""); r.Pending.Events != nil || !strings.Contains(got.stdout, "permission denied") || r.Lag.Bytes == nil {
		t.Errorf("a role without rights: %s", got.stdout)
	}
}

// relayed has a relay store n events, and end.
func (w *world) relayed(n int) {
	w.t.Helper()
	b, _ := w.startRelay()
	w.insert(n)
	sandbox.WaitFor(w.t, 20*time.Second, "all are stored", func() (bool, error) {
		r, got := w.status("")
		return r.Stream != nil && r.Stream.Messages == uint64(n), errors.New(got.stdout)
	})
	b.stop()
}

// scans counts how often the outbox and its partitions were read, from end to end and by an index.
func (w *world) scans() (seq, idx int) {
	w.t.Helper()
	err := w.conn.QueryRow(w.t.Context(), `SELECT sum(seq_scan)::bigint, sum(coalesce(idx_scan, 0))::bigint FROM pg_stat_user_tables WHERE relname LIKE 'outbox%'`).Scan(&seq, &idx)
	if err != nil {
		w.t.Fatal(err)
	}
	return seq, idx
}

func TestServedByIndex(t *testing.T) {
	t.Parallel()
	const scan = `{"Node Type": "Index Only Scan", "Index Name": "i", "Index Cond": "(created_at > x)"}`
	for plan, want := range map[string]bool{
		scan: true,
		`{"Node Type": "Aggregate", "Plans": [{"Node Type": "Limit", "Plans": [` + scan + `]}]}`: true,
		`{"Node Type": "Merge Append", "Plans": [` + scan + `, ` + scan + `]}`:                   true,
		`{"Node Type": "Seq Scan"}`: false,
		`{"Node Type": "Append", "Plans": [` + scan + `, {"Node Type": "Seq Scan"}]}`: false,
		`{"Node Type": "Index Scan", "Index Name": "pkey", "Filter": "created_at"}`:   false,
		`{"Node Type": "Sort", "Plans": [` + scan + `]}`:                              false,
		`{"Node Type": "Bitmap Heap Scan", "Plans": []}`:                              false,
		`{"Node Type": "Gather", "Plans": [` + scan + `]}`:                            false,
	} {
		if got := servedByIndex(`[{"Plan": ` + plan + `}]`); got != want {
			t.Errorf("%s: %v", plan, got)
		}
	}
	if servedByIndex("") || servedByIndex("[]") {
		t.Error("no plan is no index")
	}
}
