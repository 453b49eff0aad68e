package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/examples/orders/shipping"
	"github.com/seed-1cfd9858/relay/inbox"
	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

const ackWait = time.Second // until JetStream delivers again what was not acked

// ship is the shipping service, in a child process of the demo.
func ship(databaseURL, natsURL string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	nc, err := nats.Connect(natsURL, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	consumer, err := js.Consumer(ctx, streamName, shipping.Name)
	if err != nil {
		return err
	}
	return shipping.Consume(ctx, pool, consumer)
}

// consumer runs the shipping service, and kills it once between a commit and its ack.
type consumer struct {
	world   *world
	durable jetstream.Consumer
	dieAt   int    // the ack before which it is killed
	died    func() // tells that it was
}

func newConsumer(ctx context.Context, w *world, dieAt int, died func()) (*consumer, error) {
	cfg := inbox.ConsumerConfig(shipping.Name)
	cfg.AckWait, cfg.MaxAckPending = ackWait, 100
	durable, err := w.stream.CreateConsumer(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("create the consumer: %w", err)
	}
	return &consumer{world: w, durable: durable, dieAt: dieAt, died: died}, nil
}

// run runs the service until ctx ends: an instance that is killed, then another one.
func (c *consumer) run(ctx context.Context) error {
	acks := 0
	hook, held := sandbox.HoldFirst(func(m sandbox.NATSMessage) bool {
		if m.ToServer && strings.HasPrefix(m.Subject, "$JS.ACK.") && string(m.Body) == "+ACK" {
			acks++
		}
		return acks >= c.dieAt
	})
	c.world.shippingProxy.OnNATS(hook)
	first, err := c.start(ctx)
	if err != nil {
		return err
	}
	select {
	case <-held:
	case <-first.Done():
		return fmt.Errorf("the shipping service ended by itself; it said: %s", strings.TrimSpace(first.Tail()))
	case <-ctx.Done():
		return first.Close()
	}
	err = first.Kill()
	c.world.shippingProxy.OnNATS(nil)
	c.world.shippingProxy.Cut() // what the proxy holds never arrives
	c.died()
	if err = errors.Join(err, first.Close()); err != nil {
		return err
	}
	second, err := c.start(ctx)
	if err != nil {
		return err
	}
	select {
	case <-second.Done():
		return fmt.Errorf("the shipping service ended by itself; it said: %s", strings.TrimSpace(second.Tail()))
	case <-ctx.Done():
		return second.Close()
	}
}

func (c *consumer) start(ctx context.Context) (*sandbox.Process, error) {
	natsURL := strings.Replace(c.world.nats.URL(), c.world.nats.Addr(), c.world.shippingProxy.Addr(), 1)
	return sandbox.StartProcess(ctx, sandbox.ProcessConfig{
		Args: []string{c.world.url(), natsURL}, Env: []string{childEnv + "=" + childShipping},
	})
}

// state says how many messages were delivered so far, and whether JetStream has nothing left for the consumer.
func (c *consumer) state(ctx context.Context) (delivered int, idle bool, err error) {
	info, err := c.durable.Info(ctx)
	if err != nil {
		return 0, false, fmt.Errorf("ask for the consumer: %w", err)
	}
	return int(info.Delivered.Consumer), info.NumPending == 0 && info.NumAckPending == 0, nil
}

// shipped counts what the service has done.
func (c *consumer) shipped(ctx context.Context) (n int, err error) {
	err = c.world.admin.QueryRow(ctx, "SELECT count(*) FROM shipments").Scan(&n)
	return n, err
}

// runShipping is the child process as a whole.
func runShipping(args []string) int {
	if len(args) != 2 {
		return exitUsage
	}
	if err := ship(args[0], args[1]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "shipping:", err)
		return exitFailed
	}
	return exitOK
}
