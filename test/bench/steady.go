package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// latency is in milliseconds.
type latency struct {
	P50 figure `json:"p50"`
	P99 figure `json:"p99"`
	Max figure `json:"max"`
}

func latencyOf(all []float64) latency {
	slices.Sort(all)
	return latency{P50: figure(all[len(all)/2]), P99: figure(all[len(all)*99/100]), Max: figure(all[len(all)-1])}
}

// load is a steady flow of events.
type load struct {
	rate  int  // events a second
	perTx int  // events in a transaction
	async bool // synchronous_commit = off
}

// loads are those of the goals.
func loads() []load {
	return []load{{rate: 100, perTx: 1}, {rate: 1000, perTx: 1}, {rate: 10_000, perTx: 10, async: true}}
}

// steadied is what a steady flow did.
type steadied struct {
	Written figure // events a second that were written in fact
	Latency latency
	CPU     figure // percent of a core, of the relay
}

// writers share the transactions of a load, so that a slow commit does not hold up the next.
const writers = 4

// steady writes at a fixed rate, and reads from the stream how long each event took from its commit to there.
func (w *world) steady(ctx context.Context, l load) (r steadied, err error) {
	before, err := w.state(ctx, w.name)
	if err != nil {
		return r, err
	}
	cpu, err := cpuOf(w.relay.PID())
	if err != nil {
		return r, err
	}
	start := time.Now()
	transactions := int(w.cfg.steady.Seconds() * float64(l.rate) / float64(l.perTx))
	if err := w.write(ctx, l, transactions); err != nil {
		return r, err
	}
	took := figure(time.Since(start).Seconds())
	n := transactions * l.perTx
	if _, err := w.until(ctx, int(before.Msgs)+n); err != nil {
		return r, err
	}
	after, err := cpuOf(w.relay.PID())
	if err != nil {
		return r, err
	}
	r.Written, r.CPU = figure(n)/took, 100*(after-cpu)/took
	r.Latency, err = w.latencies(ctx, before.LastSeq+1, n)
	return r, err
}

// write commits transactions at a load's rate.
func (w *world) write(ctx context.Context, l load, transactions int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	every := time.Second * time.Duration(l.perTx) / time.Duration(l.rate)
	start := time.Now()
	var all sync.WaitGroup
	for first := range writers {
		all.Go(func() {
			if err := w.writer(ctx, l, func(yield func(time.Time) bool) {
				for i := first; i < transactions; i += writers {
					if !yield(start.Add(time.Duration(i) * every)) {
						return
					}
				}
			}); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// writer commits a transaction at each of the times.
func (w *world) writer(ctx context.Context, l load, times func(func(time.Time) bool)) (err error) {
	conn, err := pgx.Connect(ctx, w.database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if l.async {
		if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
			return err
		}
	}
	if _, err := conn.Prepare(ctx, "transaction", w.insert("1", fmt.Sprint(l.perTx))); err != nil {
		return err
	}
	for due := range times {
		if err := pause(ctx, time.Until(due)); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "transaction"); err != nil {
			return err
		}
	}
	return nil
}

// latencies compares the broker's time of each message with the commit time in it: two processes' readings of one clock.
func (w *world) latencies(ctx context.Context, from uint64, n int) (latency, error) {
	consumer, err := w.js.OrderedConsumer(ctx, w.name, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, HeadersOnly: true,
	})
	if err != nil {
		return latency{}, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return latency{}, err
	}
	defer messages.Stop()
	all := make([]float64, 0, n)
	for range n {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return latency{}, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return latency{}, err
		}
		committed, err := time.Parse(time.RFC3339Nano, m.Headers().Get("Relay-Committed-At"))
		if err != nil {
			return latency{}, err
		}
		all = append(all, float64(meta.Timestamp.Sub(committed).Microseconds())/1000)
	}
	return latencyOf(all), nil
}

// yardstick is what one synchronous publish of such a message takes, at 1 000 a second, into a stream of the same kind: until
// the ack is here, with nothing else going on. What a relay takes is compared with it.
func (w *world) yardstick(ctx context.Context) (l latency, err error) {
	name := newName()
	if err := w.makeStream(ctx, name); err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, w.js.DeleteStream(context.WithoutCancel(ctx), name)) }()
	const rate = 1000
	n := int(w.cfg.steady.Seconds() * rate)
	body := make([]byte, w.cfg.payload)
	all := make([]float64, 0, n)
	start := time.Now()
	for i := range n {
		if err := pause(ctx, time.Until(start.Add(time.Duration(i)*time.Second/rate))); err != nil {
			return l, err
		}
		m := &nats.Msg{Subject: name + ".order.created", Data: body, Header: nats.Header{
			"Nats-Msg-Id": {fmt.Sprintf("00000000-0000-4000-8000-%012d", i)}, "Relay-Position": {"0/1000000/0 " + name + "@7412345678901234567"},
			"Relay-Committed-At": {start.UTC().Format(time.RFC3339Nano)}, "Relay-Aggregate-Id": {"order-1"}, "Relay-Sequence": {"1"},
		}}
		began := time.Now()
		if _, err := w.js.PublishMsg(ctx, m); err != nil {
			return l, err
		}
		all = append(all, float64(time.Since(began).Microseconds())/1000)
	}
	return latencyOf(all), nil
}

// idle is the CPU of a relay that has nothing to do, in percent of a core: with no WAL at all, or while a table that is not
// published takes 1 000 transactions a second.
func (w *world) idle(ctx context.Context, busy bool) (figure, error) {
	before, err := cpuOf(w.relay.PID())
	if err != nil {
		return 0, err
	}
	start := time.Now()
	for i := 0; time.Since(start) < w.cfg.idle; i++ {
		if !busy {
			if err := pause(ctx, w.cfg.idle); err != nil {
				return 0, err
			}
			continue
		}
		if err := pause(ctx, time.Until(start.Add(time.Duration(i)*time.Millisecond))); err != nil {
			return 0, err
		}
		if _, err := w.conn.Exec(ctx, `INSERT INTO neighbour VALUES ($1, 'not an event')`, i); err != nil {
			return 0, err
		}
	}
	after, err := cpuOf(w.relay.PID())
	return 100 * (after - before) / figure(time.Since(start).Seconds()), err
}
