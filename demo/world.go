package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/examples/orders/order"
	"github.com/seed-1cfd9858/relay/examples/orders/shipping"
	"github.com/seed-1cfd9858/relay/inbox"
	"github.com/seed-1cfd9858/relay/internal/app"
	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// The names are the relay's own defaults, so that its commands need no flags for them.
const (
	database    = "shop"
	slotName    = "outbox_relay"
	publication = "outbox_relay"
	streamName  = "OUTBOX"

	subjectPrefix = "outbox."
)

// duplicateWindow is the shortest that a server takes: JetStream forgets ids long before anything is sent again.
const duplicateWindow = 100 * time.Millisecond

const (
	pollEvery = 10 * time.Millisecond
	closing   = 10 * time.Second // of connections and relays at the end
)

// world is the servers and the connections of the demo itself. It belongs to the goroutine that plays.
type world struct {
	pg   *sandbox.Postgres
	nats *sandbox.NATS

	proxy     *sandbox.Proxy // between relays and PostgreSQL
	natsProxy *sandbox.Proxy // between relays and NATS

	shippingProxy *sandbox.Proxy // between the shipping service and NATS

	admin  *pgx.Conn
	nc     *nats.Conn
	stream jetstream.Stream

	closers []func() error // in reverse order
}

// startWorld starts the servers. What it has started it closes itself when it fails.
func startWorld(ctx context.Context, tell *story) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	w.pg, err = sandbox.StartPostgres(ctx, sandbox.PostgresConfig{Logger: tell.logger()})
	if err != nil {
		return w, err
	}
	w.closers = append(w.closers, w.pg.Close)
	if w.nats, err = sandbox.StartNATS(ctx, sandbox.NATSConfig{}); err != nil {
		return w, err
	}
	w.closers = append(w.closers, w.nats.Close)
	if w.proxy, err = sandbox.StartProxy(ctx, w.pg.Addr()); err != nil {
		return w, err
	}
	w.closers = append(w.closers, w.proxy.Close)
	if w.natsProxy, err = sandbox.StartProxy(ctx, w.nats.Addr()); err != nil {
		return w, err
	}
	w.closers = append(w.closers, w.natsProxy.Close)
	if w.shippingProxy, err = sandbox.StartProxy(ctx, w.nats.Addr()); err != nil {
		return w, err
	}
	w.closers = append(w.closers, w.shippingProxy.Close)
	if err = w.pg.CreateDatabase(ctx, database); err != nil {
		return w, err
	}
	return w, w.connect(ctx)
}

func (w *world) connect(ctx context.Context) error {
	var err error
	if w.admin, err = pgx.Connect(ctx, w.url()); err != nil {
		return err
	}
	w.closers = append(w.closers, func() error { return closeConn(ctx, w.admin) })
	if w.nc, err = nats.Connect(w.nats.URL()); err != nil {
		return err
	}
	w.closers = append(w.closers, func() error { w.nc.Close(); return nil })
	return nil
}

// close ends the servers and removes their folders.
func (w *world) close() error {
	var errs []error
	for i := len(w.closers) - 1; i >= 0; i-- {
		errs = append(errs, w.closers[i]())
	}
	w.closers = nil
	return errors.Join(errs...)
}

func closeConn(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	return conn.Close(ctx)
}

// url is where the demo itself finds its database; proxied and proxiedNATS are where its relays find the servers.
func (w *world) url() string { return w.pg.URL(database) }

func (w *world) proxied() string { return strings.Replace(w.url(), w.pg.Addr(), w.proxy.Addr(), 1) }

func (w *world) proxiedNATS() string {
	return strings.Replace(w.nats.URL(), w.nats.Addr(), w.natsProxy.Addr(), 1)
}

// setUp makes the application's tables, and everything of the relay's with its own commands.
func (w *world) setUp(ctx context.Context, tell *story) error {
	if _, err := w.admin.Exec(ctx, order.Tables+";"+shipping.Tables+";"+inbox.DDL()); err != nil {
		return fmt.Errorf("create the shop's tables: %w", err)
	}
	db, broker := "--database-url="+w.url(), "--nats-url="+w.nats.URL()
	for _, c := range []struct{ shown, url string }{
		{"outbox create", db},
		{"stream create --duplicate-window " + duplicateWindow.String(), broker},
		{"slot create", db},
	} {
		tell.say("%s", tell.paint(bold, "$ relay "+c.shown))
		answer, err := relayCommand(ctx, append(strings.Fields(c.shown), c.url)...)
		if err != nil {
			return err
		}
		for line := range strings.Lines(answer) {
			if text := strings.TrimSpace(line); !strings.HasPrefix(text, "next:") { // the demo goes on by itself
				tell.more("%s", text)
			}
		}
	}
	js, err := jetstream.New(w.nc)
	if err != nil {
		return err
	}
	w.stream, err = js.Stream(ctx, streamName)
	return err
}

// relayCommand runs a command of the relay in this process and returns its answer.
func relayCommand(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	if code := app.Run(ctx, append([]string{"relay"}, args...), &stdout, &stderr, nil); code != 0 {
		return "", fmt.Errorf("relay %s: exit code %d: %s", args[0], code, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// lsn asks for one LSN.
func (w *world) lsn(ctx context.Context, sql string, args ...any) (pglogrepl.LSN, error) {
	var text string
	if err := w.admin.QueryRow(ctx, "SELECT ("+sql+")::text", args...).Scan(&text); err != nil {
		return 0, err
	}
	return pglogrepl.ParseLSN(text)
}

// confirmed is what the relay has told PostgreSQL that it may forget.
func (w *world) confirmed(ctx context.Context) (pglogrepl.LSN, error) {
	return w.lsn(ctx, "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = $1", slotName)
}

// held says whether a relay holds the slot.
func (w *world) held(ctx context.Context) (bool, error) {
	var active bool
	err := w.admin.QueryRow(ctx, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", slotName).Scan(&active)
	return active, err
}

// stored counts the stream's messages.
func (w *world) stored(ctx context.Context) (int, error) {
	info, err := w.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask for the stream: %w", err)
	}
	return int(info.State.Msgs), nil
}

// waitFor asks until the answer is yes, an error, or the limit.
func waitFor(ctx context.Context, limit time.Duration, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		done, err := ask()
		if ctx.Err() != nil {
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
