// Command orders is two small services that share nothing but events: one takes orders, the other ships them. relay carries
// the events from the one's transaction to the other's.
//
//	export DATABASE_URL=postgres://... NATS_URL=nats://...
//	relay outbox create && relay stream create && relay slot create && relay run
//	go run ./examples/orders tables     once
//	go run ./examples/orders order      serves POST /orders and DELETE /orders/{id} on LISTEN (127.0.0.1:8080)
//	go run ./examples/orders ship
//
// shipping.py is the second service once more, in Python.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/examples/orders/order"
	"github.com/seed-1cfd9858/relay/examples/orders/shipping"
	"github.com/seed-1cfd9858/relay/inbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	services := map[string]func(context.Context, *pgxpool.Pool) error{"tables": tables, "order": takeOrders, "ship": ship}
	if len(args) != 1 || services[args[0]] == nil {
		return errors.New("want one argument: tables, order or ship")
	}
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	return services[args[0]](ctx, pool)
}

// tables makes the tables of both services and of the inbox, but for the outbox.
func tables(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, order.Tables+";"+shipping.Tables+";"+inbox.DDL())
	return err
}

func takeOrders(ctx context.Context, pool *pgxpool.Pool) error {
	server := &http.Server{
		Addr: env("LISTEN", "127.0.0.1:8080"), Handler: (&order.Service{DB: pool, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}).Handler(), ReadHeaderTimeout: 5 * time.Second,
	}
	stopped := make(chan error, 1)
	unhook := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		stopped <- server.Shutdown(last)
	})
	defer unhook()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

func ship(ctx context.Context, pool *pgxpool.Pool) error {
	nc, err := nats.Connect(env("NATS_URL", nats.DefaultURL), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, env("STREAM", "OUTBOX"), inbox.ConsumerConfig(shipping.Name))
	if err != nil {
		return err
	}
	return shipping.Consume(ctx, pool, consumer)
}

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
