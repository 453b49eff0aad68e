package test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/test/harness"
)

// BenchmarkRetention writes 2 000 events a second, first alone, then while a million old rows are pruned, and reports the 99th
// percentile of an insert in both: go test ./test -run '^$' -bench Retention -benchtime 1x
func BenchmarkRetention(b *testing.B) {
	const old, alone = 1_000_000, 15 * time.Second
	w := harness.New(b, harness.Config{Stream: window100ms})
	w.Start("--log-level=info")
	w.Exec(`INSERT INTO outbox (id, topic, payload, created_at) SELECT gen_random_uuid(), 'order.created', jsonb_build_object('fill', repeat('x', 200)), now() - interval '3 days'
		FROM generate_series(1, $1)`, old)
	for w.Count() < old {
		passes(b, 100*time.Millisecond)
	}
	w.Exec(`VACUUM ANALYZE outbox`)
	b.ResetTimer()
	for range b.N {
		calm := writeWhile(b, w, func() { passes(b, alone) })
		began := time.Now()
		busy := writeWhile(b, w, func() { b.Log(w.MustDo("outbox", "prune", "--older-than=24h")) })
		b.ReportMetric(time.Since(began).Seconds(), "s/prune")
		b.ReportMetric(milliseconds(calm), "ms/p99-alone")
		b.ReportMetric(milliseconds(busy), "ms/p99-prune")
		b.ReportMetric(float64(busy)/float64(calm), "p99-ratio")
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// writeWhile has four writers insert 2 000 events a second, each in a transaction of its own, until do returns. It returns the
// 99th percentile of what an insert took.
func writeWhile(b *testing.B, w *harness.World, do func()) time.Duration {
	b.Helper()
	const writers, each = 4, 500 // events a second
	var stop atomic.Bool
	var all sync.WaitGroup
	took := make([][]time.Duration, writers)
	for i := range writers {
		conn, err := pgx.Connect(b.Context(), w.Database)
		if err != nil {
			b.Fatal(err)
		}
		all.Go(func() {
			tick := time.NewTicker(time.Second / each)
			defer tick.Stop()
			for !stop.Load() {
				<-tick.C
				began := time.Now()
				_, err := conn.Exec(b.Context(), `INSERT INTO outbox (id, topic, payload) VALUES (gen_random_uuid(), 'order.created', '{"n": 1}')`)
				if err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(began))
			}
			_ = conn.Close(b.Context())
		})
	}
	do()
	stop.Store(true)
	all.Wait()
	sorted := slices.Sorted(slices.Values(slices.Concat(took...)))
	b.Logf("%d inserts, p50 %s, p99 %s, max %s", len(sorted), sorted[len(sorted)/2], sorted[len(sorted)*99/100], sorted[len(sorted)-1])
	return sorted[len(sorted)*99/100]
}
