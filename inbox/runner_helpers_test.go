package inbox

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/outbox"
)

const limit = 20 * time.Second

// market is a stream, a consumer, and a database for what the consumer does.
type market struct {
	t      testing.TB
	name   string // of stream and consumer
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	pool   *pgxpool.Pool
	url    string

	pgProxy, natsProxy *sandbox.Proxy // between a runner of start and the servers
	direct             bool           // runners of start do without
}

func openMarket(t testing.TB, change ...func(*jetstream.ConsumerConfig)) *market {
	t.Helper()
	m := &market{t: t, name: sandbox.Name(t), url: sandbox.Database(t)}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	server := sandbox.JetStream(t)
	var err error
	m.nc, err = nats.Connect(server.URL())
	ok(err)
	t.Cleanup(m.nc.Close)
	m.js, err = jetstream.New(m.nc)
	ok(err)
	m.stream, err = m.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: m.name, Subjects: []string{m.name + ".>"}, Duplicates: 100 * time.Millisecond, MaxAge: time.Hour,
	})
	ok(err)
	cfg := ConsumerConfig(m.name)
	for _, f := range change {
		f(&cfg)
	}
	_, err = m.stream.CreateConsumer(t.Context(), cfg)
	ok(err)
	m.pool, err = pgxpool.New(t.Context(), m.url)
	ok(err)
	t.Cleanup(m.pool.Close)
	_, err = m.pool.Exec(t.Context(), DDL()+`CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, event_id text NOT NULL, aggregate_id text NOT NULL, sequence bigint NOT NULL)`)
	ok(err)
	m.pgProxy, err = sandbox.StartProxy(t.Context(), sandbox.PG(t).Addr())
	ok(err)
	t.Cleanup(func() { _ = m.pgProxy.Close() })
	m.natsProxy, err = sandbox.StartProxy(t.Context(), server.Addr())
	ok(err)
	t.Cleanup(func() { _ = m.natsProxy.Close() })
	return m
}

// publish stores an event of an aggregate, "" for none, with its number, 0 for none.
func (m *market) publish(id, aggregate string, sequence int) {
	m.t.Helper()
	if _, err := m.js.PublishMsg(m.t.Context(), m.message(id, aggregate, sequence)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *market) message(id, aggregate string, sequence int) *nats.Msg {
	header := nats.Header{}
	if id != "" {
		header.Set(outbox.HeaderMsgID, id)
	}
	if aggregate != "" {
		header.Set(outbox.HeaderAggregateID, aggregate)
	}
	if sequence > 0 {
		header.Set(outbox.HeaderSequence, fmt.Sprint(sequence))
	}
	return &nats.Msg{Subject: m.name + ".x", Header: header, Data: []byte(`{"n":1}`)}
}

// publishMany stores events of that many aggregates, numbered from 1.
func (m *market) publishMany(events, aggregates int) {
	m.t.Helper()
	for i := range events {
		m.publish(fmt.Sprint("e", i), fmt.Sprint("a", i%aggregates), 1+i/aggregates)
	}
}

// effect is what every handler does.
func effect(ctx context.Context, tx pgx.Tx, msg Message) error {
	_, err := tx.Exec(ctx, `INSERT INTO effects (event_id, aggregate_id, sequence) VALUES ($1, $2, $3)`, msg.ID, msg.AggregateID, msg.Sequence)
	return err
}

// running is a runner.
type running struct {
	stop func() error // ends it and returns its error
	log  *logBuffer
}

// start runs a runner, through the proxies. What cfg leaves out it gets from the market.
func (m *market) start(cfg Config) *running {
	m.t.Helper()
	natsURL, pgURL := "nats://"+m.natsProxy.Addr(), strings.Replace(m.url, sandbox.PG(m.t).Addr(), m.pgProxy.Addr(), 1)
	if m.direct {
		natsURL, pgURL = m.nc.ConnectedUrl(), m.url
	}
	nc, err := nats.Connect(natsURL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		m.t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		m.t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(pgURL)
	if err != nil {
		m.t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(m.t.Context(), config)
	if err != nil {
		m.t.Fatal(err)
	}
	if cfg.Consumer, err = js.Consumer(m.t.Context(), m.name, m.name); err != nil {
		m.t.Fatal(err)
	}
	cfg.DB, cfg.Name = pool, m.name
	if cfg.Handle == nil {
		cfg.Handle = effect
	}
	if cfg.FirstPause == 0 {
		cfg.FirstPause = 5 * time.Millisecond
	}
	r := &running{log: &logBuffer{}}
	cfg.Log = r.log.logger()
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		err := <-done
		pool.Close()
		nc.Close()
		return err
	})
	m.t.Cleanup(func() {
		if err := r.stop(); err != nil && !m.t.Failed() {
			m.t.Errorf("the runner ended: %v", err)
		}
		if m.t.Failed() {
			m.t.Logf("runner:\n%s", r.log.String())
		}
	})
	return r
}

// effects returns the ids of the events that took effect, in that order, of one aggregate or of all.
func (m *market) effects(aggregate string) []string {
	m.t.Helper()
	rows, err := m.pool.Query(m.t.Context(), `SELECT event_id FROM effects WHERE $1 IN ('', aggregate_id) ORDER BY n`, aggregate)
	if err != nil {
		m.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		m.t.Fatal(err)
	}
	return ids
}

// settled waits until JetStream has an ack of everything.
func (m *market) settled() {
	m.t.Helper()
	consumer, err := m.stream.Consumer(m.t.Context(), m.name)
	if err != nil {
		m.t.Fatal(err)
	}
	sandbox.WaitFor(m.t, limit, "everything is acked", func() (bool, error) {
		info, err := consumer.Info(m.t.Context())
		return err == nil && info.NumPending == 0 && info.NumAckPending == 0, err
	})
}

// expect fails the test unless each of so many events took effect once, in the order of its aggregate.
func (m *market) expect(events, aggregates int) {
	m.t.Helper()
	m.settled()
	if n := len(m.effects("")); n != events {
		m.t.Errorf("%d effects of %d events", n, events)
	}
	for a := range aggregates {
		got := m.effects(fmt.Sprint("a", a))
		for i, id := range got {
			if want := fmt.Sprint("e", a+i*aggregates); id != want {
				m.t.Errorf("aggregate %d: effect %d is of %s, want %s", a, i, id, want)
				break
			}
		}
	}
}
