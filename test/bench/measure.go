package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/app"
	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

const (
	database = "bench"
	stream   = "OUTBOX"
)

// bench is a running set of servers.
type bench struct {
	cfg   config
	pg    *sandbox.Postgres
	nats  *sandbox.NATSProcess
	conn  *pgx.Conn
	js    jetstream.JetStream
	relay *sandbox.Process
	args  []string // of relay run
}

func measure(ctx context.Context, cfg config) (f figures, err error) {
	b := &bench{cfg: cfg}
	defer func() { err = errors.Join(err, b.close(context.WithoutCancel(ctx))) }()
	if err := b.setUp(ctx); err != nil {
		return f, err
	}
	if err := b.backlog(ctx); err != nil {
		return f, err
	}
	for _, part := range []func(context.Context, *figures) error{b.drain, b.steady, b.idle} {
		if err := part(ctx, &f); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (b *bench) setUp(ctx context.Context) (err error) {
	if b.pg, err = sandbox.StartPostgres(ctx, sandbox.PostgresConfig{}); err != nil {
		return err
	}
	if b.nats, err = sandbox.StartNATSProcess(ctx, sandbox.NATSConfig{}); err != nil {
		return err
	}
	if err := b.pg.CreateDatabase(ctx, database); err != nil {
		return err
	}
	if b.conn, err = pgx.Connect(ctx, b.pg.URL(database)); err != nil {
		return err
	}
	nc, err := nats.Connect(b.nats.URL())
	if err != nil {
		return err
	}
	if b.js, err = jetstream.New(nc); err != nil {
		return err
	}
	b.args = []string{"run", "--database-url", b.pg.URL(database), "--nats-url", b.nats.URL(), "--stream", stream}
	for _, command := range [][]string{
		{"outbox", "create", "--database-url", b.pg.URL(database)},
		{"stream", "create", "--nats-url", b.nats.URL(), "--stream", stream},
		{"slot", "create", "--database-url", b.pg.URL(database)},
	} {
		var log bytes.Buffer
		if code := app.Run(ctx, append([]string{"relay"}, command...), &log, &log, nil); code != 0 {
			return fmt.Errorf("relay %s: exit %d: %s", command[0], code, log.String())
		}
	}
	return nil
}

func (b *bench) close(ctx context.Context) error {
	var errs []error
	if b.relay != nil {
		errs = append(errs, b.relay.Close())
	}
	if b.js != nil {
		b.js.Conn().Close()
	}
	if b.conn != nil {
		errs = append(errs, b.conn.Close(ctx))
	}
	if b.nats != nil {
		errs = append(errs, b.nats.Close())
	}
	if b.pg != nil {
		errs = append(errs, b.pg.Close())
	}
	return errors.Join(errs...)
}

// insert is one transaction's rows.
func (b *bench) insert(from, to string) string {
	headers := "NULL"
	if b.cfg.headers > 0 {
		pairs := make([]string, b.cfg.headers)
		for i := range pairs {
			pairs[i] = fmt.Sprintf(`"X-Header-%d":"value-of-header-%d"`, i, i)
		}
		headers = "'{" + strings.Join(pairs, ",") + "}'"
	}
	body := max(0, b.cfg.payload-len(`{"order": 123456, "text": ""}`))
	return fmt.Sprintf(`INSERT INTO outbox (id, topic, payload, aggregate_id, sequence, headers)
		SELECT gen_random_uuid(), 'order.created', jsonb_build_object('order', i, 'text', repeat('x', %d)), 'order-' || i, 1, %s
		FROM generate_series(%s, %s) i`, body, headers, from, to)
}

func (b *bench) backlog(ctx context.Context) error {
	_, err := b.conn.Exec(ctx, fmt.Sprintf(`DO $$ DECLARE n int := 1; BEGIN
		WHILE n <= %d LOOP %s; COMMIT; n := n + %d; END LOOP; END $$`,
		b.cfg.events, b.insert("n", fmt.Sprintf("least(n + %d, %d)", b.cfg.perTx-1, b.cfg.events)), b.cfg.perTx))
	return err
}

// usage reads what the three processes have used so far.
func (b *bench) usage(ctx context.Context) (relay, broker, walsender sandbox.Usage, err error) {
	var pid int
	if err = b.conn.QueryRow(ctx, `SELECT active_pid FROM pg_replication_slots WHERE active`).Scan(&pid); err != nil {
		return relay, broker, walsender, fmt.Errorf("the relay does not hold its slot: %w", err)
	}
	relay, err1 := b.relay.Usage()
	broker, err2 := b.nats.Process().Usage()
	walsender, err3 := sandbox.UsageOf(pid)
	return relay, broker, walsender, errors.Join(err1, err2, err3)
}

func (b *bench) state(ctx context.Context) (jetstream.StreamState, error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return jetstream.StreamState{}, err
	}
	return s.CachedInfo().State, nil
}

// until waits until the stream holds n messages.
func (b *bench) until(ctx context.Context, n int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		state, err := b.state(ctx)
		switch {
		case err != nil:
			return err
		case state.Msgs >= uint64(n):
			return nil
		case !b.relay.Running():
			return fmt.Errorf("the relay has ended: %s", b.relay.Tail())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (b *bench) drain(ctx context.Context, f *figures) error {
	before, err := b.nats.Process().Usage()
	if err != nil {
		return err
	}
	start := time.Now()
	env := []string{childEnv + "=relay"}
	if b.cfg.profile != "" {
		env = append(env, profileEnv+"="+b.cfg.profile)
	}
	if b.relay, err = sandbox.StartProcess(ctx, sandbox.ProcessConfig{Args: b.args, Env: env}); err != nil {
		return err
	}
	if err := b.until(ctx, b.cfg.events); err != nil {
		return err
	}
	took := time.Since(start)
	relay, broker, walsender, err := b.usage(ctx)
	if err != nil {
		return err
	}
	n := float64(b.cfg.events)
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / n }
	f.Events, f.EventsPerSecond = b.cfg.events, n/took.Seconds()
	f.RelayCPU, f.NATSCPU, f.WalsenderCPU = per(relay.CPU), per(broker.CPU-before.CPU), per(walsender.CPU)
	f.RelayVsBroker = f.RelayCPU / f.NATSCPU
	f.RelayShare = f.RelayCPU / (f.RelayCPU + f.NATSCPU + f.WalsenderCPU)
	f.PeakRSS = float64(relay.PeakRSSBytes) / (1 << 20)
	return nil
}

// steady writes transactions of one event at a fixed rate and reads from the stream how long each took.
func (b *bench) steady(ctx context.Context, f *figures) error {
	before, _, _, err := b.usage(ctx)
	if err != nil {
		return err
	}
	state, err := b.state(ctx)
	if err != nil {
		return err
	}
	if _, err := b.conn.Prepare(ctx, "one", b.insert("1", "1")); err != nil {
		return err
	}
	total := int(b.cfg.steady.Seconds() * float64(b.cfg.rate))
	start := time.Now()
	for i := range total {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(b.cfg.rate))
		if err := pause(ctx, time.Until(due)); err != nil {
			return err
		}
		if _, err := b.conn.Exec(ctx, "one"); err != nil {
			return err
		}
	}
	took := time.Since(start)
	if err := b.until(ctx, b.cfg.events+total); err != nil {
		return err
	}
	after, _, _, err := b.usage(ctx)
	if err != nil {
		return err
	}
	f.Rate = int(float64(total) / took.Seconds())
	f.SteadyCPUPercent = 100 * (after.CPU - before.CPU).Seconds() / took.Seconds()
	f.Latency, err = b.latencies(ctx, state.LastSeq+1, total)
	return err
}

// latencies compares the broker's time of each message with the commit time in it: two clocks of one machine.
func (b *bench) latencies(ctx context.Context, from uint64, n int) (latency, error) {
	consumer, err := b.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{
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
	slices.Sort(all)
	return latency{P50: all[len(all)/2], P99: all[len(all)*99/100], Max: all[len(all)-1]}, nil
}

// idle watches a relay that has nothing to do, then stops it.
func (b *bench) idle(ctx context.Context, f *figures) error {
	before, _, _, err := b.usage(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, b.cfg.idle); err != nil {
		return err
	}
	after, _, _, err := b.usage(ctx)
	if err != nil {
		return err
	}
	f.IdleCPUPercent = 100 * (after.CPU - before.CPU).Seconds() / b.cfg.idle.Seconds()
	if err := b.relay.Signal(os.Interrupt); err != nil {
		return err
	}
	code, err := b.relay.Wait(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("the relay exited with %d: %s", code, b.relay.Tail())
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
