package inbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
)

// fill stores events of 50 aggregates, without numbers.
func (m *market) fill(events int) {
	m.t.Helper()
	for i := range events {
		if _, err := m.js.PublishMsgAsync(m.message(fmt.Sprint("e", i), fmt.Sprint("a", i%50), 0)); err != nil {
			m.t.Fatal(err)
		}
	}
	<-m.js.PublishAsyncComplete()
}

// BenchmarkConsume compares Run, with one transaction at a time, to a loop by hand with the same statements, and to batches:
// events a second.
func BenchmarkConsume(b *testing.B) {
	byHand := func(b *testing.B, m *market) {
		consumer, err := m.js.Consumer(b.Context(), m.name, m.name)
		if err != nil {
			b.Fatal(err)
		}
		messages, err := consumer.Messages()
		if err != nil {
			b.Fatal(err)
		}
		defer messages.Stop()
		for range b.N {
			msg, err := messages.Next()
			if err != nil {
				b.Fatal(err)
			}
			d, err := receive(msg)
			if err != nil {
				b.Fatal(err)
			}
			err = pgx.BeginFunc(b.Context(), m.pool, func(tx pgx.Tx) error {
				tag, err := tx.Exec(b.Context(), claim, m.name, d.ID)
				if err != nil || tag.RowsAffected() == 0 {
					return err
				}
				return effect(b.Context(), tx, d.Message)
			})
			if err != nil {
				b.Fatal(err)
			}
			if err := msg.DoubleAck(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	run := func(cfg Config) func(*testing.B, *market) {
		return func(b *testing.B, m *market) {
			var handled atomic.Int64
			done := make(chan struct{})
			cfg.Handle = func(ctx context.Context, tx pgx.Tx, msg Message) error {
				if handled.Add(1) == int64(b.N) {
					close(done)
				}
				return effect(ctx, tx, msg)
			}
			m.start(cfg)
			<-done
		}
	}
	for _, way := range []struct {
		name    string
		consume func(*testing.B, *market)
	}{
		{"by hand", byHand},
		{"run, 1 at a time", run(Config{Concurrency: 1})},
		{"run, 8 at a time", run(Config{})},
		{"run, 1 at a time, batches of 100", run(Config{Concurrency: 1, Batch: 100})},
	} {
		b.Run(way.name, func(b *testing.B) {
			m := openMarket(b, func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 2000 })
			m.direct = true
			m.fill(b.N)
			b.ResetTimer()
			way.consume(b, m)
			b.StopTimer()
			m.settled()
			if n := len(m.effects("")); n != b.N {
				b.Fatalf("%d effects of %d events", n, b.N)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkOnceInMany shows that the time of an event does not grow with what was processed before: each claims a new event.
func BenchmarkOnceInMany(b *testing.B) {
	for _, rows := range []int{0, 10_000_000} {
		b.Run(fmt.Sprint(rows, " rows"), func(b *testing.B) {
			if rows > 0 && testing.Short() {
				b.Skip("takes minutes")
			}
			m := openMarket(b)
			_, err := m.pool.Exec(b.Context(), `INSERT INTO `+Table+` (consumer, event_id) SELECT 'c', gen_random_uuid()::text FROM generate_series(1, $1)`, rows)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := m.pool.Exec(b.Context(), `INSERT INTO `+Table+` (consumer, event_id) VALUES ('c', gen_random_uuid()::text) ON CONFLICT DO NOTHING`); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
