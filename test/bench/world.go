package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/app"
)

// world is a database with an outbox, a stream and a slot, all of one name. The relay's own commands make them.
type world struct {
	*servers
	cfg      config
	name     string
	database string // URL
	conn     *pgx.Conn
	relay    *relayProcess // nil while none runs
}

func newWorld(ctx context.Context, s *servers, cfg config, stream ...string) (_ *world, err error) {
	w := &world{servers: s, cfg: cfg, name: newName()}
	if w.database, err = s.databaseURL(w.name); err != nil {
		return nil, err
	}
	if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+w.name); err != nil {
		return nil, fmt.Errorf("create database %s: %w", w.name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(context.WithoutCancel(ctx)))
		}
	}()
	if w.conn, err = pgx.Connect(ctx, w.database); err != nil {
		return nil, err
	}
	if err := w.do(ctx, "outbox", "create", "--database-url", w.database); err != nil {
		return nil, err
	}
	if err := w.makeStream(ctx, w.name, stream...); err != nil {
		return nil, err
	}
	_, err = w.conn.Exec(ctx, `CREATE TABLE neighbour (n int, text text)`)
	return w, err
}

func (w *world) makeStream(ctx context.Context, name string, flags ...string) error {
	return w.do(ctx, append([]string{"stream", "create", "--nats-url", w.natsURL, "--stream", name, "--subject", name + ".{topic}"}, flags...)...)
}

func (w *world) makeSlot(ctx context.Context) error {
	return w.do(ctx, "slot", "create", "--database-url", w.database, "--slot", w.name, "--publication", w.name)
}

func (w *world) dropSlot(ctx context.Context) error {
	return w.do(ctx, "slot", "drop", "--database-url", w.database, "--slot", w.name)
}

// runArgs is the command line of the world's relay.
func (w *world) runArgs() []string {
	return []string{
		"run", "--database-url", w.database, "--slot", w.name, "--publication", w.name, "--nats-url", w.natsURL,
		"--stream", w.name, "--subject", w.name + ".{topic}",
	}
}

// do runs a command of the relay here.
func (w *world) do(ctx context.Context, command ...string) error {
	var log bytes.Buffer
	if code := app.Run(ctx, append([]string{"relay"}, command...), &log, &log, nil); code != 0 {
		return fmt.Errorf("relay %s %s: exit %d: %s", command[0], command[1], code, log.String())
	}
	return nil
}

// close removes everything that the world has made.
func (w *world) close(ctx context.Context) error {
	var errs []error
	if w.relay != nil {
		errs = append(errs, w.relay.Close())
	}
	if w.conn != nil {
		errs = append(errs, w.conn.Close(ctx))
	}
	if err := w.js.DeleteStream(ctx, w.name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		errs = append(errs, err)
	}
	// A walsender whose client is gone lets go of its slot when it notices.
	err := poll(ctx, 30*time.Second, func() (bool, error) {
		_, err := w.admin.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, w.name)
		return err == nil, err
	})
	if err == nil {
		_, err = w.admin.Exec(ctx, "DROP DATABASE "+w.name+" WITH (FORCE)")
	}
	return errors.Join(append(errs, err)...)
}

// insert is a statement that inserts the events from to to.
func (w *world) insert(from, to string) string {
	headers := "NULL"
	if w.cfg.headers > 0 {
		pairs := make([]string, w.cfg.headers)
		for i := range pairs {
			pairs[i] = fmt.Sprintf(`"X-Header-%d":"value-of-header-%d"`, i, i)
		}
		headers = "'{" + strings.Join(pairs, ",") + "}'"
	}
	body := max(0, w.cfg.payload-len(`{"text": "", "order": 123456}`))
	return fmt.Sprintf(`INSERT INTO outbox (id, topic, payload, aggregate_id, sequence, headers)
		SELECT gen_random_uuid(), 'order.created', jsonb_build_object('order', i, 'text', repeat('x', %d)), 'order-' || i, 1, %s
		FROM generate_series(%s, %s) i`, body, headers, from, to)
}

// backlog commits the configured events, and as many rows of a table that is not published, for each event.
func (w *world) backlog(ctx context.Context, neighbours int) error {
	other := ""
	if neighbours > 0 {
		other = fmt.Sprintf(`INSERT INTO neighbour SELECT i, 'not an event' FROM generate_series(1, %d) i;`, neighbours*w.cfg.perTx)
	}
	_, err := w.conn.Exec(ctx, fmt.Sprintf(`DO $$ DECLARE n int := 1; BEGIN
		WHILE n <= %d LOOP %s; %s COMMIT; n := n + %d; END LOOP; END $$`,
		w.cfg.events, w.insert("n", fmt.Sprintf("least(n + %d, %d)", w.cfg.perTx-1, w.cfg.events)), other, w.cfg.perTx))
	return err
}

// fill inserts small rows until the outbox holds so many.
func (w *world) fill(ctx context.Context, rows int) error {
	const step = 500_000
	for n := 1; n <= rows; n += step {
		_, err := w.conn.Exec(ctx, fmt.Sprintf(`INSERT INTO outbox (id, topic, payload)
			SELECT lpad(to_hex(i), 32, '0')::uuid, 'order.created', '{}' FROM generate_series(%d, %d) i`, n, min(n+step-1, rows)))
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) state(ctx context.Context, stream string) (jetstream.StreamState, error) {
	s, err := w.js.Stream(ctx, stream)
	if err != nil {
		return jetstream.StreamState{}, err
	}
	return s.CachedInfo().State, nil
}

// until waits until the world's stream holds n messages and returns its state.
func (w *world) until(ctx context.Context, n int) (state jetstream.StreamState, err error) {
	err = poll(ctx, 0, func() (bool, error) {
		state, err = w.state(ctx, w.name)
		if err == nil && state.Msgs < uint64(n) && !w.relay.Running() {
			err = fmt.Errorf("the relay has ended after %d of %d events: %s", state.Msgs, n, w.relay.Tail())
			return true, err
		}
		return state.Msgs >= uint64(n), err
	})
	return state, err
}

// poll calls done until it says so, and returns its last error. A limit of 0 is none but that of ctx.
func poll(ctx context.Context, limit time.Duration, done func() (bool, error)) error {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for {
		end, err := done()
		if end {
			return err
		}
		if wait := pause(ctx, 10*time.Millisecond); wait != nil {
			return errors.Join(wait, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
