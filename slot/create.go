package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// DefaultCreateTimeout bounds Create where the options do not.
const DefaultCreateTimeout = 60 * time.Second

// cleanupTimeout bounds what is done after a failure, when the caller's context may be over already.
const cleanupTimeout = 10 * time.Second

// failoverVersion is the first version that knows failover slots.
const failoverVersion = 170000

// CreateOptions says how Create makes the slot. The zero value is the documented default.
type CreateOptions struct {
	Failover bool          // a slot that is copied to standbys (17+)
	Timeout  time.Duration // for all of it but the counting of earlier rows; 0 means DefaultCreateTimeout
	// OnWait is told about once a second which transactions the slot waits for, oldest first. It runs on Create's
	// goroutine and must not block. May be nil.
	OnWait func(waitingFor []Transaction)
}

// Created is what Create found or made.
type Created struct {
	Existed            bool // a fitting slot and publication were there; nothing was changed
	PublicationCreated bool
	// StartLSN is the slot's confirmed LSN: of a new slot the consistent point, whose later commits it delivers.
	StartLSN pglogrepl.LSN
	// EarlierRows is the number of rows that were committed before the new slot's consistent point: the slot never
	// delivers them. It is exact. Nil if the slot existed or the rows could not be counted.
	EarlierRows *int64
	// EarlierUnknown is why the rows could not be counted, for instance for want of the right to SELECT.
	EarlierUnknown error
	// ResendSQL inserts the next batch of earlier rows again, oldest first, as new WAL with the same ids. Repeat it until
	// it reports 0 rows. Empty if there are none.
	ResendSQL string
}

// Create makes the publication, if it is missing, and then the slot. It never completes what may have lost events: a slot
// whose publication is missing is refused, and so is anything that exists and does not fit (*MismatchError). A fitting
// pair that exists already is no error. cc must come from pgx.ParseConfig and reach PostgreSQL directly, not a pooler.
//
// A slot is ready only after every write transaction that already runs has ended. When that takes longer than the timeout,
// or ctx ends (*WaitError), the server's work is cancelled and what this call made is taken away again; if that cannot be
// done, a *LeftoverError says what is left. Of concurrent calls for the same names one makes the slot; the others find it, or
// are refused while it is being made.
func Create(ctx context.Context, cc *pgx.ConnConfig, cfg Config, o CreateOptions) (Created, error) {
	if err := cfg.Validate(); err != nil {
		return Created{}, err
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultCreateTimeout
	}
	c := creation{cc: cc, cfg: cfg, opts: o, started: time.Now()}
	bounded, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(bounded, cc)
	if err != nil {
		return Created{}, fmt.Errorf("connect: %w", err)
	}
	defer closeConn(ctx, conn)
	c.conn = conn

	if c.state, err = Inspect(bounded, conn, cfg); err != nil {
		return Created{}, err
	}
	created, err := c.precheck()
	if created.Existed || err != nil {
		return created, err
	}
	if created.PublicationCreated, err = c.ensurePublication(bounded); err != nil {
		return Created{}, err
	}
	ready, err := c.makeSlot(bounded)
	if sqlState(err) == codeDuplicateObject {
		return c.overtaken(bounded, created.PublicationCreated)
	}
	if err != nil {
		return Created{}, c.undo(ctx, created.PublicationCreated, err)
	}
	defer ready.close(ctx)
	created.StartLSN = ready.consistent
	c.countEarlier(ctx, ready.snapshot, &created)
	return created, nil
}

// creation is one call of Create; owned by its goroutine.
type creation struct {
	cc      *pgx.ConnConfig
	cfg     Config
	opts    CreateOptions
	started time.Time
	conn    *pgx.Conn // a normal connection
	state   State     // as found at the start
	waiting []Transaction
}

// precheck answers with Existed if nothing is left to do, with nothing if the slot is to be made, and else refuses.
func (c *creation) precheck() (Created, error) {
	s := c.state
	if c.opts.Failover && s.ServerVersion < failoverVersion {
		return Created{}, fmt.Errorf("slot %q on %s, version %d: %w", c.cfg.Slot, s.Where, s.ServerVersion/10000, ErrFailoverVersion)
	}
	var broken []Problem
	for _, p := range s.Problems(c.cfg) {
		switch {
		case p.Code == CodeSlotMissing, p.Code == CodePublicationMissing && s.Slot == nil:
		case p.Severity == Broken, p.Code == CodeSlotUnfinished:
			broken = append(broken, p)
		}
	}
	if s.Slot != nil && c.opts.Failover && (s.Slot.Failover == nil || !*s.Slot.Failover) {
		broken = append(broken, Problem{
			Code: CodeSlotFailover, Severity: Broken, Kind: KindSlot, Fix: c.cfg.recreate() + " --failover",
			Text: fmt.Sprintf("slot %q on %s exists without failover", c.cfg.Slot, s.Where),
		})
	}
	if len(broken) > 0 {
		return Created{}, &MismatchError{Where: s.Where, Problems: broken}
	}
	if s.Slot == nil {
		return Created{}, nil
	}
	return Created{Existed: true, StartLSN: *s.Slot.ConfirmedFlushLSN}, nil
}

// ensurePublication makes the publication if it is missing and waits until every transaction that is older than it has
// ended. The new slot waits for those anyway; waiting here makes its catalog_xmin prove that the publication is older.
func (c *creation) ensurePublication(ctx context.Context) (made bool, err error) {
	name := pgx.Identifier{c.cfg.Publication}.Sanitize()
	if c.state.Publication == nil {
		_, err := c.conn.Exec(ctx, "CREATE PUBLICATION "+name+" FOR TABLE "+c.cfg.Table.SQL()+
			" WITH (publish = 'insert', publish_via_partition_root = true)")
		switch {
		case err == nil:
			made = true
		case sqlState(err) != codeDuplicateObject && sqlState(err) != "23505":
			return false, fmt.Errorf("create publication %s: %w", name, err)
		default: // another call was faster; judge what it made
			if c.state, err = Inspect(ctx, c.conn, c.cfg); err != nil {
				return false, err
			}
			if _, err := c.precheck(); err != nil {
				return false, err
			}
		}
	}
	err = c.poll(ctx, func() (bool, error) {
		var older *bool
		err := c.conn.QueryRow(ctx, `
			SELECT greatest(age(p.xmin), (SELECT max(age(r.xmin)) FROM pg_publication_rel r WHERE r.prpubid = p.oid))
				> age(pg_snapshot_xmin(pg_current_snapshot())::xid)
			FROM pg_publication p WHERE p.pubname = $1::name`, pgx.QueryExecModeExec, c.cfg.Publication).Scan(&older)
		return older != nil && *older, err
	})
	if err != nil {
		return false, c.undo(ctx, made, c.failed(ctx, "wait for older transactions", err))
	}
	return made, nil
}

// overtaken judges a slot that somebody made while this call was about to.
func (c *creation) overtaken(ctx context.Context, madePublication bool) (created Created, err error) {
	if c.state, err = Inspect(ctx, c.conn, c.cfg); err != nil {
		return Created{}, err
	}
	if created, err = c.precheck(); err != nil {
		return Created{}, err
	}
	if madePublication && !c.state.Publication.OlderThanSlot {
		return Created{}, &LeftoverError{
			Cause: fmt.Errorf("slot %q on %s was made by somebody else at the same moment, perhaps before its publication: %w",
				c.cfg.Slot, c.state.Where, ErrMismatch),
			Left: "publication " + pgx.Identifier{c.cfg.Publication}.Sanitize(), Fix: c.cfg.recreate(),
		}
	}
	created.PublicationCreated = madePublication
	return created, nil
}

// failed turns an error that is due to the end of ctx into a WaitError.
func (c *creation) failed(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return &WaitError{Slot: c.cfg.Slot, Waited: time.Since(c.started), Waiting: c.waiting, Cause: context.Cause(ctx)}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// undo takes the publication away again if this call made it, unless a slot of the name exists, which would then be
// broken. It returns cause, with what is left if anything is.
func (c *creation) undo(ctx context.Context, made bool, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	name := pgx.Identifier{c.cfg.Publication}.Sanitize()
	left := func(what string, fix string) error { return &LeftoverError{Cause: cause, Left: what, Fix: fix} }
	if !made {
		return cause
	}
	conn, err := pgx.ConnectConfig(ctx, c.cc)
	if err != nil {
		return left("publication "+name, "DROP PUBLICATION "+name+";")
	}
	defer closeConn(ctx, conn)
	var slots int
	err = conn.QueryRow(ctx, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1::name`,
		pgx.QueryExecModeExec, c.cfg.Slot).Scan(&slots)
	if err == nil && slots > 0 {
		return left(fmt.Sprintf("publication %s and slot %q", name, c.cfg.Slot), "relay slot create "+c.cfg.flags())
	}
	if err == nil {
		_, err = conn.Exec(ctx, "DROP PUBLICATION IF EXISTS "+name)
	}
	if err != nil {
		return left("publication "+name, "DROP PUBLICATION "+name+";")
	}
	return cause
}

// closeConn closes with a bound of its own.
func closeConn(ctx context.Context, conn interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := conn.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return // the server is gone: nothing to give back
	}
}
