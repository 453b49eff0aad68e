package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/internal/app"
	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// The names are the relay's own defaults.
const (
	database   = "shop"
	slotName   = "outbox_relay"
	streamName = "OUTBOX"
	recordName = "chaos_record" // slot and publication of the order of the commits

	sessionTimeout  = 2 * time.Second
	duplicateWindow = 100 * time.Millisecond // the shortest that a server takes
)

// world is the servers, and the relays with their ways to them.
type world struct {
	pg      *sandbox.Postgres
	broker  *broker
	relays  [2]*member
	out     *story
	forgets atomic.Int64 // times that PostgreSQL was stopped in a way in which it may forget confirmations

	closers []func() error // in reverse order
}

func newWorld(ctx context.Context, program string, opts options, out *story) (w *world, err error) {
	w = &world{out: out}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	w.pg, err = sandbox.StartPostgres(ctx, sandbox.PostgresConfig{Settings: map[string]string{"max_wal_size": "256MB"}})
	if err != nil {
		return w, err
	}
	w.closers = append(w.closers, w.pg.Close)
	if w.broker, err = startBroker(ctx, opts.cluster); err != nil {
		return w, err
	}
	w.closers = append(w.closers, w.broker.close)
	if err = w.pg.CreateDatabase(ctx, database); err != nil {
		return w, err
	}
	if err = w.setUp(ctx); err != nil {
		return w, err
	}
	for i := range w.relays {
		if err = w.addRelay(ctx, i, program, opts.logs); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *world) url() string { return w.pg.URL(database) }

// setUp makes everything with the relay's own commands. The stream forgets ids at once: JetStream's own deduplication does
// none of the work.
func (w *world) setUp(ctx context.Context) error {
	for _, args := range [][]string{
		{"outbox", "create", "--database-url", w.url()},
		{"stream", "create", "--nats-url", w.broker.url, "--duplicate-window", duplicateWindow.String(), "--replicas", strconv.Itoa(len(w.broker.nodes))},
		{"slot", "create", "--database-url", w.url()},
	} {
		if err := persist(ctx, "relay "+strings.Join(args[:2], " "), func() error { return relayCommand(ctx, args) }); err != nil {
			return err
		}
	}
	return w.do(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE PUBLICATION "+recordName+" FOR TABLE outbox WITH (publish = 'insert')")
		if err == nil {
			_, err = conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", recordName)
		}
		return err
	})
}

// relayCommand runs a command of the relay in this process.
func relayCommand(ctx context.Context, args []string) error {
	var stdout, stderr bytes.Buffer
	if code := app.Run(ctx, append([]string{"relay"}, args...), &stdout, &stderr, nil); code != 0 {
		return fmt.Errorf("exit code %d: %s", code, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// addRelay starts a relay that reaches each server through a proxy of its own.
func (w *world) addRelay(ctx context.Context, i int, program, logs string) error {
	m := &member{name: fmt.Sprintf("relay%d", i), path: program}
	var err error
	if m.pgProxy, err = sandbox.StartProxy(ctx, w.pg.Addr()); err != nil {
		return err
	}
	w.closers = append(w.closers, m.pgProxy.Close)
	natsURL := w.broker.url
	for _, n := range w.broker.nodes {
		p, err := sandbox.StartProxy(ctx, n.Addr())
		if err != nil {
			return err
		}
		w.closers = append(w.closers, p.Close)
		m.natsProxy = append(m.natsProxy, p)
		natsURL = strings.Replace(natsURL, n.Addr(), p.Addr(), 1)
	}
	if m.log, err = os.CreateTemp(logs, "relay-chaos-"+m.name+"-*.log"); err != nil {
		return err
	}
	w.closers = append(w.closers, m.log.Close)
	u, err := url.Parse(strings.Replace(w.url(), w.pg.Addr(), m.pgProxy.Addr(), 1))
	if err != nil {
		return err
	}
	query := u.Query()
	query.Set("application_name", m.name) // says who holds the slot
	u.RawQuery = query.Encode()
	m.args = []string{
		"run", "--listen=", "--database-url=" + u.String(), "--nats-url=" + natsURL,
		"--session-timeout=" + sessionTimeout.String(), "--ack-timeout=2s", "--yield-after=5s", "--drain-timeout=5s", "--log-level=debug",
	}
	m.onPg(nil)
	w.relays[i] = m
	w.closers = append(w.closers, m.close)
	return m.start(ctx)
}

func (w *world) close() error {
	var errs []error
	for i := len(w.closers) - 1; i >= 0; i-- {
		errs = append(errs, w.closers[i]())
	}
	w.closers = nil
	return errors.Join(errs...)
}

// forgetLogs removes the relays' logs.
func (w *world) forgetLogs() error {
	var errs []error
	for _, m := range w.relays {
		errs = append(errs, os.Remove(m.log.Name()))
	}
	return errors.Join(errs...)
}

// do runs f on a connection of its own: a held one would stand in the way of a smart shutdown.
func (w *world) do(ctx context.Context, f func(*pgx.Conn) error) error {
	return w.doWithin(ctx, 10*time.Second, f)
}

func (w *world) doWithin(ctx context.Context, limit time.Duration, f func(*pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.url())
	if err != nil {
		return err
	}
	return errors.Join(f(conn), conn.Close(context.WithoutCancel(ctx)))
}

// leader returns the relay that holds the slot, nil if none does.
func (w *world) leader(ctx context.Context) (*member, error) {
	var name *string
	err := w.do(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT (SELECT application_name FROM pg_stat_activity a WHERE a.pid = s.active_pid)
			FROM pg_replication_slots s WHERE slot_name = $1`, slotName).Scan(&name)
	})
	if err != nil || name == nil {
		return nil, err
	}
	for _, m := range w.relays {
		if m.name == *name {
			return m, nil
		}
	}
	return nil, nil
}

// waitLeader waits until a relay that will do leads. PostgreSQL may be on its way up.
func (w *world) waitLeader(ctx context.Context, limit time.Duration, will func(*member) bool) (*member, error) {
	var found *member
	err := waitFor(ctx, limit, "a relay leads", func() (bool, error) {
		m, err := w.leader(ctx)
		if err != nil || m == nil || !will(m) {
			return false, nil //nolint:nilerr // a server that cannot be asked is one of the faults
		}
		found = m
		return true, nil
	})
	return found, err
}

func (w *world) other(m *member) *member {
	if m == w.relays[0] {
		return w.relays[1]
	}
	return w.relays[0]
}

// confirmed returns what PostgreSQL may forget, and where its WAL ends.
func (w *world) confirmed(ctx context.Context) (confirmed, end pglogrepl.LSN, err error) {
	var a, b string
	err = w.do(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT confirmed_flush_lsn::text, pg_current_wal_flush_lsn()::text FROM pg_replication_slots WHERE slot_name = $1`,
			slotName).Scan(&a, &b)
	})
	if err != nil {
		return 0, 0, err
	}
	if confirmed, err = pglogrepl.ParseLSN(a); err != nil {
		return 0, 0, err
	}
	end, err = pglogrepl.ParseLSN(b)
	return confirmed, end, err
}

// lift ends whatever a fault that did not work out has left behind.
func (w *world) lift(ctx context.Context) error {
	var errs []error
	for _, n := range w.broker.nodes {
		_ = n.Process().Thaw() // one that has ended is started
		errs = append(errs, n.Start(ctx))
	}
	errs = append(errs, w.pg.Start(ctx))
	for _, m := range w.relays {
		_ = m.proc().Thaw()
		for _, p := range append(link{m.pgProxy}, m.natsProxy...) {
			p.Thaw()
			p.Delay(0)
			errs = append(errs, p.Refuse(ctx, false))
		}
		m.cut()
	}
	errs = append(errs, persist(ctx, "the limit is lifted", func() error { return w.limitStream(ctx, false) }))
	return errors.Join(errs...)
}
