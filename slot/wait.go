package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	pollEvery   = 100 * time.Millisecond
	reportEvery = time.Second
)

// Transaction is a write transaction that a new slot waits for. Of other roles' transactions PostgreSQL hides the times
// and the state unless the asking role is a member of pg_monitor.
type Transaction struct {
	PID         int32  // 0 for a prepared transaction
	Prepared    string // a prepared transaction's name
	User        string
	Database    string
	Application string
	State       string     // of pg_stat_activity: active, idle in transaction, ...
	Since       *time.Time // start of the transaction; nil if hidden
	QueryStart  *time.Time // start of its last statement; nil if hidden
}

// String names the transaction in one phrase.
func (t Transaction) String() string {
	s := fmt.Sprintf("pid %d", t.PID)
	if t.PID == 0 {
		s = fmt.Sprintf("prepared transaction %q", t.Prepared)
	}
	if t.Application != "" {
		s += fmt.Sprintf(" (%s)", t.Application)
	}
	s += fmt.Sprintf(" of user %q in database %q", t.User, t.Database)
	if t.State != "" {
		s += ", " + t.State
	}
	if t.Since != nil {
		s += ", running since " + t.Since.Format(time.RFC3339)
	}
	return s
}

// waitingSQL lists who holds a transaction id. Locks are visible to every role, other than most of pg_stat_activity.
const waitingSQL = `
SELECT * FROM (
	SELECT DISTINCT l.pid, '', coalesce(a.usename::text, ''), coalesce(a.datname::text, ''), coalesce(a.application_name, ''),
		coalesce(a.state, ''), a.xact_start AS since, a.query_start
	FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
	WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid IS NOT NULL
		AND l.pid <> pg_backend_pid() AND l.pid <> $1::int
	UNION ALL
	SELECT 0, gid, owner::text, database::text, '', 'prepared', prepared, NULL FROM pg_prepared_xacts) AS w
ORDER BY since NULLS LAST`

// transactions returns the running write transactions, oldest first, without that of backend except.
func transactions(ctx context.Context, conn *pgx.Conn, except uint32) ([]Transaction, error) {
	rows, err := conn.Query(ctx, waitingSQL, pgx.QueryExecModeExec, int64(except))
	if err != nil {
		return nil, fmt.Errorf("list running transactions: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Transaction, err error) {
		return t, row.Scan(&t.PID, &t.Prepared, &t.User, &t.Database, &t.Application, &t.State, &t.Since, &t.QueryStart)
	})
	if err != nil {
		return nil, fmt.Errorf("list running transactions: %w", err)
	}
	return list, nil
}

// poll asks until done answers true or fails, or ctx ends; meanwhile it reports who is waited for.
func (c *creation) poll(ctx context.Context, done func() (bool, error)) error {
	report := c.reporter(0)
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if err := report(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollEvery):
		}
	}
}

// reporter returns a function that looks up who is waited for, and tells it, when that is due: after the first poll that
// was not the end, then once every reportEvery.
func (c *creation) reporter(except uint32) func(context.Context) error {
	last := time.Now().Add(2*pollEvery - reportEvery)
	return func(ctx context.Context) (err error) {
		if time.Since(last) < reportEvery {
			return nil
		}
		last = time.Now()
		if c.waiting, err = transactions(ctx, c.conn, except); err != nil {
			return err
		}
		if c.opts.OnWait != nil && len(c.waiting) > 0 {
			c.opts.OnWait(c.waiting)
		}
		return nil
	}
}

// readySlot is a new slot whose snapshot is still exported by the replication connection.
type readySlot struct {
	repl       *pgconn.PgConn
	consistent pglogrepl.LSN
	snapshot   string
}

func (r readySlot) close(ctx context.Context) { closeConn(ctx, r.repl) }

// makeSlot makes the slot on a replication connection of its own. The command runs beside this goroutine, which watches
// the clock and the other transactions, and does not return before the command has ended.
func (c *creation) makeSlot(ctx context.Context) (readySlot, error) {
	replConfig := c.cc.Copy()
	replConfig.RuntimeParams["replication"] = "database"
	repl, err := pgconn.ConnectConfig(ctx, &replConfig.Config)
	if err != nil {
		return readySlot{}, c.failed(ctx, "open a replication connection", err)
	}
	type result struct {
		ready readySlot
		err   error
	}
	done := make(chan result, 1)
	go func() {
		ready, err := createSlot(context.WithoutCancel(ctx), repl, c.command())
		done <- result{ready, err}
	}()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	report := c.reporter(repl.PID())
	var stop error // why the command is to end
	for stop == nil {
		select {
		case r := <-done:
			if r.err != nil {
				closeConn(ctx, repl)
				return readySlot{}, c.failed(ctx, fmt.Sprintf("create slot %q", c.cfg.Slot), r.err)
			}
			return r.ready, nil
		case <-ctx.Done():
			stop = c.failed(ctx, "", nil)
		case <-ticker.C:
			if err := report(ctx); err != nil {
				stop = c.failed(ctx, fmt.Sprintf("create slot %q", c.cfg.Slot), err)
			}
		}
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	cancelErr := repl.CancelRequest(cleanup)
	select {
	case <-done:
	case <-cleanup.Done():
		// Nobody answers. Closing the socket ends the command on this side; the server may still wait.
		cancelErr = errors.Join(cancelErr, repl.Conn().Close())
		<-done
	}
	closeConn(ctx, repl)
	return readySlot{}, c.sweep(ctx, repl.PID(), stop, cancelErr)
}

// command is the replication command. The slot's name was validated: it needs and knows no quotes there.
func (c *creation) command() string {
	options := " EXPORT_SNAPSHOT"
	switch {
	case c.opts.Failover:
		options = " (SNAPSHOT 'export', FAILOVER true)"
	case c.state.ServerVersion >= 150000:
		options = " (SNAPSHOT 'export')"
	}
	return "CREATE_REPLICATION_SLOT " + c.cfg.Slot + " LOGICAL pgoutput" + options
}

func createSlot(ctx context.Context, repl *pgconn.PgConn, command string) (readySlot, error) {
	results, err := repl.Exec(ctx, command).ReadAll()
	if err != nil {
		return readySlot{}, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) < 3 {
		return readySlot{}, errors.New("the server's answer has not the form of a new slot")
	}
	row := results[0].Rows[0]
	lsn, err := pglogrepl.ParseLSN(string(row[1]))
	if err != nil {
		return readySlot{}, err
	}
	return readySlot{repl: repl, consistent: lsn, snapshot: string(row[2])}, nil
}

// sweep makes sure, after a cancel, that the slot is gone: a half-made one is dropped by its backend, one that became
// ready in the last moment is dropped here. It returns stop, or a LeftoverError.
func (c *creation) sweep(ctx context.Context, backend uint32, stop, cancelErr error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	left := &LeftoverError{Cause: stop, Left: fmt.Sprintf("perhaps slot %q", c.cfg.Slot), Fix: "relay slot list"}
	conn, err := pgx.ConnectConfig(ctx, c.cc)
	if err != nil {
		return left
	}
	defer closeConn(ctx, conn)
	if cancelErr != nil {
		if _, err := conn.Exec(ctx, `SELECT pg_terminate_backend($1::int)`, pgx.QueryExecModeExec, int64(backend)); err != nil {
			return left
		}
	}
	for {
		state, err := Inspect(ctx, conn, c.cfg)
		if err != nil {
			return left
		}
		switch {
		case state.Slot == nil:
			return stop
		case !state.Slot.Active && state.Slot.ConfirmedFlushLSN != nil:
			if err := Drop(ctx, conn, c.cfg, DropOptions{}); err != nil && !errors.Is(err, ErrSlotMissing) {
				return left
			}
			return stop
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(pollEvery):
		}
	}
}
