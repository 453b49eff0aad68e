package inbox_test

import (
	"context"

	"github.com/jackc/pgx/v5"
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
