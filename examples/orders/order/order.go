// Package order is an order service that writes its events with its data: the writing side of the transactional outbox, to
// copy from.
//
// What is left when it dies: before COMMIT nothing, neither order nor event; after COMMIT both, and relay delivers the event.
package order

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-1cfd9858/relay/outbox"
)

// Tables are the service's own; the outbox table is made by `relay outbox create`.
const Tables = `CREATE TABLE IF NOT EXISTS orders (
	id       uuid   PRIMARY KEY,
	customer text   NOT NULL,
	cents    bigint NOT NULL CHECK (cents > 0),
	state    text   NOT NULL DEFAULT 'placed',
	events   bigint NOT NULL DEFAULT 0 -- written about this order so far: numbers them
)`

// The topics of the events.
const (
	Placed    = "order.placed"
	Cancelled = "order.cancelled"
)

// Order is what a customer wants. It is the payload of both events as well.
type Order struct {
	ID       uuid.UUID `json:"id"`
	Customer string    `json:"customer"`
	Cents    int64     `json:"cents"`
}

// Errors of the service.
var (
	ErrInvalid  = errors.New("an order needs a customer and a price")
	ErrNotFound = errors.New("there is no such order that could be cancelled")
)

// Service keeps orders in a database.
type Service struct {
	DB  *pgxpool.Pool
	Log *slog.Logger // of what a client cannot mend
}

// Place places an order, in a transaction of its own.
func (s *Service) Place(ctx context.Context, customer string, cents int64) (o Order, err error) {
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		o, err = Place(ctx, tx, customer, cents)
		return err
	})
	return o, err
}

// Cancel cancels an order that was placed, in a transaction of its own.
func (s *Service) Cancel(ctx context.Context, id uuid.UUID) error {
	return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error { return Cancel(ctx, tx, id) })
}

// Place writes an order and its event into the caller's transaction: both commit, or neither.
func Place(ctx context.Context, tx pgx.Tx, customer string, cents int64) (Order, error) {
	if customer == "" || cents <= 0 {
		return Order{}, ErrInvalid
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Order{}, err
	}
	o := Order{ID: id, Customer: customer, Cents: cents}
	_, err = tx.Exec(ctx, `INSERT INTO orders (id, customer, cents) VALUES ($1, $2, $3)`, id.String(), customer, cents)
	if err != nil {
		return Order{}, fmt.Errorf("insert order: %w", err)
	}
	return o, publish(ctx, tx, Placed, o)
}

// Cancel cancels an order, and says so, in the caller's transaction.
func Cancel(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	o := Order{ID: id}
	err := tx.QueryRow(ctx, `UPDATE orders SET state = 'cancelled' WHERE id = $1 AND state = 'placed' RETURNING customer, cents`, id.String()).
		Scan(&o.Customer, &o.Cents)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("cancel order %s: %w", id, err)
	}
	return publish(ctx, tx, Cancelled, o)
}

// publish writes an event about an order. Its number is taken while the order's row is locked, so the order's events commit
// in the order of their numbers, and a consumer sees by the numbers if one is missing.
func publish(ctx context.Context, tx pgx.Tx, topic string, o Order) error {
	payload, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var number int64
	err = tx.QueryRow(ctx, `UPDATE orders SET events = events + 1 WHERE id = $1 RETURNING events`, o.ID.String()).Scan(&number)
	if err != nil {
		return fmt.Errorf("number the event: %w", err)
	}
	_, err = outbox.Insert(ctx, tx, outbox.Draft{Topic: topic, AggregateID: o.ID.String(), Sequence: number, Payload: payload})
	return err
}
