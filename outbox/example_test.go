package outbox_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/outbox"
)

// The order and its event commit together, or neither does.
func ExampleInsert() {
	createOrder := func(ctx context.Context, conn *pgx.Conn, customer string) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var order int64
			err := tx.QueryRow(ctx, `INSERT INTO orders (customer) VALUES ($1) RETURNING id`, customer).Scan(&order)
			if err != nil {
				return err
			}
			_, err = outbox.Insert(ctx, tx, outbox.Draft{
				Topic:       "order.created",
				AggregateID: fmt.Sprint(order),
				Payload:     fmt.Appendf(nil, `{"order": %d}`, order),
			})
			return err
		})
	}
	_ = createOrder
}
