package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	consumerName = "bookkeeping"
	ackWait      = time.Second // until JetStream delivers again what was not acked
	ackLimit     = 10 * time.Second
)

// consumer books every order that was placed. Each event takes effect once, however often it is delivered: its id and its
// effect are one transaction.
type consumer struct {
	natsURL, pgURL string
	durable        jetstream.Consumer
	dieAt          int64 // the booking after which one instance dies before its ack

	delivered atomic.Int64 // messages that were handed to us
	booked    atomic.Int64 // effects that committed
	repeated  atomic.Int64 // messages whose event had taken effect before

	died func() // tells that an instance is gone
}

// newConsumer makes the durable consumer in JetStream. One message at a time: what is delivered again comes before what
// follows it.
func newConsumer(ctx context.Context, w *world, dieAt int64, died func()) (*consumer, error) {
	durable, err := w.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("create the consumer: %w", err)
	}
	return &consumer{natsURL: w.nats.URL(), pgURL: w.url(), durable: durable, dieAt: dieAt, died: died}, nil
}

// errDied is the end of an instance that "died".
var errDied = errors.New("died after the commit, before the ack")

// run consumes until ctx ends. When an instance dies the next one takes its place.
func (c *consumer) run(ctx context.Context) error {
	for {
		err := c.instance(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, errDied):
			return fmt.Errorf("consume: %w", err)
		}
		c.died()
	}
}

// instance is one life of the consumer, with connections of its own.
func (c *consumer) instance(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.pgURL)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn) //nolint:errcheck // what matters is committed
	nc, err := nats.Connect(c.natsURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	durable, err := js.Consumer(ctx, streamName, consumerName)
	if err != nil {
		return err
	}
	messages, err := durable.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		if err := c.handle(ctx, conn, m); err != nil {
			return err
		}
	}
}

func (c *consumer) handle(ctx context.Context, conn *pgx.Conn, m jetstream.Msg) error {
	c.delivered.Add(1)
	first, err := book(ctx, conn, m.Headers().Get(jetstream.MsgIDHeader), m.Data())
	if err != nil {
		return err
	}
	if !first {
		c.repeated.Add(1)
	} else if c.booked.Add(1) == c.dieAt {
		return errDied
	}
	ctx, cancel := context.WithTimeout(ctx, ackLimit)
	defer cancel()
	return m.DoubleAck(ctx) // the server says that it has the ack
}

// book is the whole pattern on the consuming side. It returns false for an event that has taken effect before.
func book(ctx context.Context, conn *pgx.Conn, eventID string, payload []byte) (bool, error) {
	var placed orderPlaced
	if err := json.Unmarshal(payload, &placed); err != nil {
		return false, fmt.Errorf("event %s: %w", eventID, err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // does nothing after the commit
	tag, err := tx.Exec(ctx, `INSERT INTO processed_events (event_id) VALUES ($1) ON CONFLICT DO NOTHING`, eventID)
	if err != nil || tag.RowsAffected() == 0 {
		return false, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO bookings (event_id, order_id, cents) VALUES ($1, $2, $3)`, eventID, placed.Order, placed.Cents)
	if err != nil {
		return false, err
	}
	return true, tx.Commit(ctx)
}

// idle says whether JetStream has nothing left for the consumer, delivered or not.
func (c *consumer) idle(ctx context.Context) (bool, error) {
	info, err := c.durable.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("ask for the consumer: %w", err)
	}
	return info.NumPending == 0 && info.NumAckPending == 0, nil
}
