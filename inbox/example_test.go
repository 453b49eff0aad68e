package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/inbox"
)

// Commit first, then ack: a consumer that dies in between gets the message once more, and does nothing then.
func ExampleOnce() {
	handle := func(ctx context.Context, conn *pgx.Conn, m jetstream.Msg) error {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := inbox.Once(ctx, tx, "shipping", m.Headers().Get(jetstream.MsgIDHeader), func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO shipments (event) VALUES ($1)`, m.Data())
				return err
			})
			return err
		})
		if err != nil {
			return m.Nak()
		}
		return m.DoubleAck(ctx)
	}
	_ = handle
}

// A whole consumer: it goes on until ctx ends.
func ExampleRun() {
	run := func(ctx context.Context, pool *pgxpool.Pool, nc *nats.Conn) error {
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		consumer, err := js.CreateOrUpdateConsumer(ctx, "OUTBOX", inbox.ConsumerConfig("shipping"))
		if err != nil {
			return err
		}
		return inbox.Run(ctx, inbox.Config{
			Consumer: consumer, DB: pool, Name: "shipping",
			Handle: func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
				var order struct{ ID int64 }
				if err := json.Unmarshal(m.Data, &order); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, `INSERT INTO shipments (order_id) VALUES ($1)`, order.ID)
				return err
			},
		})
	}
	_ = run
}

// Look at what a consumer has given up, and try it again once the cause is mended.
func ExampleRetry() {
	retryAll := func(ctx context.Context, pool *pgxpool.Pool, handle func(context.Context, pgx.Tx, inbox.Message) error) error {
		dead, err := inbox.Dead(ctx, pool, "shipping", 100)
		if err != nil {
			return err
		}
		for _, d := range dead {
			fmt.Println(d.FailedAt.Format(time.RFC3339), d.ID, d.Subject, d.Reason)
			if err := inbox.Retry(ctx, pool, "shipping", d.ID, handle); err != nil {
				return err
			}
		}
		return nil
	}
	_ = retryAll
}

// Once a night: the stream keeps its messages for a week, so what was processed eight days ago cannot come again.
func ExamplePrune() {
	prune := func(ctx context.Context, pool *pgxpool.Pool, stream jetstream.Stream, consumer jetstream.Consumer) (int64, error) {
		return inbox.Prune(ctx, inbox.PruneConfig{
			DB: pool, Name: "shipping", Stream: stream, Consumer: consumer, OlderThan: 8 * 24 * time.Hour,
		})
	}
	_ = prune
}
