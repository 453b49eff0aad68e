// Package shipping is a service that ships what was ordered: the consuming side of the transactional outbox, to copy from.
//
// What is left when it dies: before the commit nothing, and the event is delivered again; after it the row in
// processed_events, and the next delivery only acks.
package shipping

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/examples/orders/order"
	"github.com/seed-1cfd9858/relay/inbox"
)

// Name is who has processed an event, and the name of the durable consumer.
const Name = "shipping"

// Tables are the service's own; those of the inbox are printed by `relay outbox ddl --inbox`. There is no unique key on the
// order: an order that is shipped twice shows.
const Tables = `CREATE TABLE IF NOT EXISTS shipments (
	n        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	consumer text   NOT NULL,
	order_id uuid   NOT NULL,
	customer text   NOT NULL DEFAULT '',
	cents    bigint NOT NULL DEFAULT 0
)`

// Consume ships until ctx ends. Orders are handled at the same time, the events of one order one after the other.
func Consume(ctx context.Context, db inbox.DB, consumer jetstream.Consumer) error {
	return inbox.Run(ctx, inbox.Config{
		Consumer: consumer, DB: db, Name: Name, Handle: Handle,
		OnGap: inbox.GapWait, // an order's events are numbered: never act on a later one without the one before
	})
}

// errUnknown is the error of an event that this version of the service does not know. It is retried, and then kept in
// inbox_dead until somebody has deployed a version that does.
var errUnknown = errors.New("an event of an unknown kind")

// Handle does what an event means here, in the transaction that notes it as processed.
func Handle(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	var o order.Order
	if err := json.Unmarshal(m.Data, &o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	switch {
	case strings.HasSuffix(m.Subject, order.Placed):
		_, err := tx.Exec(ctx, `INSERT INTO shipments (consumer, order_id, customer, cents) VALUES ($1, $2, $3, $4)`,
			Name, o.ID.String(), o.Customer, o.Cents)
		return err
	case strings.HasSuffix(m.Subject, order.Cancelled):
		_, err := tx.Exec(ctx, `DELETE FROM shipments WHERE consumer = $1 AND order_id = $2`, Name, o.ID.String())
		return err
	}
	return fmt.Errorf("subject %s: %w", m.Subject, errUnknown)
}
