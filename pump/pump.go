package pump

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/replication"
	"github.com/seed-1cfd9858/relay/slot"
)

// Pump is one relay. Run it once.
type Pump struct {
	cfg      Config
	database *pgx.ConnConfig
	log      *slog.Logger

	decoder   *outbox.Decoder
	publisher *publisher.Publisher
	retry     *retry // of everything with PostgreSQL
	led       bool   // the slot was held once in this process
	silence   silence
	warned    map[slot.Code]bool
	status    atomic.Pointer[Status]
	turned    atomic.Int64 // Unix nanoseconds
}

// New returns a relay that reaches PostgreSQL by database. The configuration has been validated.
func New(cfg Config, database *pgx.ConnConfig, log *slog.Logger) *Pump {
	cfg = cfg.withDefaults()
	p := &Pump{
		cfg: cfg, database: database, log: log, warned: map[slot.Code]bool{}, retry: newRetry(cfg.Random),
		silence:   silence{base: cfg.SessionTimeout},
		decoder:   outbox.NewDecoder(cfg.Slot.Table, cfg.Publisher.Template),
		publisher: publisher.New(cfg.Publisher, log),
	}
	now := time.Now()
	p.status.Store(&Status{State: StateStandby, Since: now})
	p.turn(now)
	return p
}

// yieldFor is how long a relay that could reach no broker leaves the slot to others.
const yieldFor = 5 * time.Second

// Run relays until ctx ends, and returns nil then, after draining. Before that it returns only what trying again cannot
// mend: *HaltError, *UnfitError, *PermanentError, or a *outbox.TableError.
func (p *Pump) Run(ctx context.Context) error {
	defer p.publisher.Close()
	for {
		session, confirmed, err := p.standby(ctx)
		if err != nil {
			return p.stopped(ctx, err)
		}
		began := time.Now()
		err = p.lead(ctx, session, confirmed)
		if err == nil || final(err) {
			return p.stopped(ctx, err)
		}
		if session.Confirmed() > confirmed || time.Since(began) > p.cfg.SessionTimeout {
			p.retry.reset()
		}
		p.silence.ended(errors.Is(err, replication.ErrSilent))
		wait := p.retry.next()
		if errors.Is(err, errYield) {
			wait = yieldFor
		}
		p.log.Warn("session ended, another one follows", "reason", sessionEnd(err), "lasted", time.Since(began).Round(time.Millisecond),
			"backoff", wait.Round(time.Millisecond))
		p.setState(StateStandby, sessionEnd(err))
		if !sleep(ctx, wait) {
			return p.stopped(ctx, nil)
		}
	}
}

// sessionEnd says in one line why a session ended.
func sessionEnd(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func (p *Pump) stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && !final(err) {
		err = nil
	}
	p.setState(StateStopped, "")
	return err
}

// final reports whether the error ends Run.
func final(err error) bool {
	var (
		halt      *HaltError
		unfit     *UnfitError
		permanent *PermanentError
		table     *outbox.TableError
	)
	return errors.As(err, &halt) || errors.As(err, &unfit) || errors.As(err, &permanent) || errors.As(err, &table)
}

// sleep waits and reports whether ctx still runs.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// inspect looks at the catalogue over a connection of its own: a held one would block a smart shutdown.
func (p *Pump) inspect(ctx context.Context) (slot.State, error) {
	ctx, cancel := context.WithTimeout(ctx, min(p.cfg.SessionTimeout, 5*time.Second))
	defer cancel()
	if p.cfg.Inspect != nil {
		return p.cfg.Inspect(ctx)
	}
	conn, err := pgx.ConnectConfig(ctx, p.database.Copy())
	if err != nil {
		return slot.State{}, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return slot.Inspect(ctx, conn, p.cfg.Slot)
}

// patience bounds what may block the loop of a leader.
func (p *Pump) patience() time.Duration { return min(p.cfg.SessionTimeout/3, 5*time.Second) }

// standbyLook is how often a standby looks whether the slot is free.
const standbyLook = time.Second

// standby waits until this relay holds the slot, and returns the session and the slot's confirmed LSN, read while it was
// held. It is calm while somebody else holds it.
func (p *Pump) standby(ctx context.Context) (*replication.Session, pglogrepl.LSN, error) {
	holder := ""
	for ctx.Err() == nil {
		p.turn(time.Now())
		session, confirmed, by, err := p.acquire(ctx)
		switch {
		case err == nil:
			p.led = true
			return session, confirmed, nil
		case final(err):
			return nil, 0, err
		case errors.Is(err, errSlotTaken):
			if by != holder {
				holder = by
				p.log.Info("standing by: the slot is held", "slot", p.cfg.Slot.Slot, "holder", by)
			}
			p.setState(StateStandby, "")
			if !sleep(ctx, standbyLook) {
				return nil, 0, context.Cause(ctx)
			}
			continue
		case ctx.Err() != nil:
			return nil, 0, context.Cause(ctx)
		}
		permanent, advice := slot.Classify(err)
		if permanent && !p.led {
			return nil, 0, &PermanentError{Err: err, advice: advice}
		}
		wait := p.retry.next()
		p.setState(StateStandby, slot.Reason(err))
		p.log.Warn("PostgreSQL cannot be used, trying again", "reason", slot.Reason(err), "advice", advice, "backoff", wait.Round(time.Millisecond))
		if !sleep(ctx, wait) {
			break
		}
	}
	return nil, 0, context.Cause(ctx)
}

// acquire tries once to hold the slot. Only a look at the catalogue is made while it is held by somebody, so that the
// server's log stays clean.
func (p *Pump) acquire(ctx context.Context) (_ *replication.Session, _ pglogrepl.LSN, holder string, err error) {
	state, err := p.inspect(ctx)
	if err == nil {
		err = p.fit(state)
	}
	if err != nil {
		return nil, 0, "", err
	}
	if state.Slot.Active || state.Slot.Unfinished() {
		return nil, 0, describe(state.Slot), errSlotTaken
	}
	openCtx, cancel := context.WithTimeout(ctx, p.cfg.SessionTimeout)
	defer cancel()
	p.decoder.Reset(state.Table.OID)
	session, err := replication.Open(openCtx, &p.database.Config, replication.Config{
		Slot: p.cfg.Slot.Slot, Publication: p.cfg.Slot.Publication, Timeout: p.cfg.SessionTimeout, Patience: p.silence.patience(),
	}, p.decoder)
	if slot.IsActive(err) {
		return nil, 0, "another relay, just now", errSlotTaken
	}
	if err != nil {
		// The slot may have been lost since the look: its state says more than the server's refusal.
		if state, again := p.inspect(ctx); again == nil {
			if unfit := p.fit(state); final(unfit) {
				err = unfit
			}
		}
		return nil, 0, "", err
	}
	// Now that nobody else can move it, the slot's confirmed LSN is where this session begins.
	state, err = p.inspect(ctx)
	if err == nil {
		err = p.fit(state)
	}
	if err == nil && (state.Slot.ActivePID == nil || uint32(*state.Slot.ActivePID) != session.PID() || state.Slot.ConfirmedFlushLSN == nil) {
		err = fmt.Errorf("slot %q is not held by this session", p.cfg.Slot.Slot)
	}
	if err != nil {
		// A session that ended at once has lost the slot already: what the server said about it is what counts.
		return nil, 0, "", p.unreadable(ctx, errors.Join(err, p.closeSession(ctx, session)))
	}
	p.silence.began(state.FlushLSN)
	return session, *state.Slot.ConfirmedFlushLSN, "", nil
}

func describe(s *slot.Slot) string {
	switch {
	case s.Unfinished():
		return "slot create, which waits for running transactions"
	case s.Holder != nil && s.Holder.Address != "":
		return fmt.Sprintf("pid %d (%s from %s)", s.Holder.PID, s.Holder.ApplicationName, s.Holder.Address)
	case s.ActivePID != nil:
		return fmt.Sprintf("pid %d", *s.ActivePID)
	}
	return "unknown"
}

// fit returns an *UnfitError if the slot, the publication or the table cannot be used. What is wrong with the server
// itself can pass: a standby is promoted.
func (p *Pump) fit(state slot.State) error {
	p.note(func(s *Status) { s.Slot, s.SlotAt = state.Slot, time.Now() })
	unfit := &UnfitError{Where: state.Where}
	var server error
	for _, problem := range state.Problems(p.cfg.Slot) {
		switch {
		case problem.Severity == slot.Warning:
			if !p.warned[problem.Code] {
				p.warned[problem.Code] = true
				p.log.Warn("set-up in PostgreSQL", "problem", problem.Text, "code", problem.Code, "fix", problem.Fix)
			}
		case problem.Kind == slot.KindServer && (p.led || problem.Code == slot.CodeInRecovery):
			server = errors.New(problem.Text)
		case problem.Kind == slot.KindServer:
			return &PermanentError{Err: errors.New(problem.Text), advice: problem.Fix}
		default:
			unfit.Problems = append(unfit.Problems, problem)
		}
	}
	if server != nil {
		return server
	}
	if len(unfit.Problems) > 0 {
		return unfit
	}
	return nil
}

// unreadable makes an *UnfitError of the server's answer that it has no such publication at the LSN it reads. If the
// publication is not there now either, it was dropped, else it is younger than that LSN. Another error stays as it is.
func (p *Pump) unreadable(ctx context.Context, err error) error {
	if !errors.Is(err, replication.ErrPublicationUnknown) {
		return err
	}
	p.log.Error("the slot cannot be read", "err", err)
	if state, again := p.inspect(context.WithoutCancel(ctx)); again == nil {
		if unfit := p.fit(state); final(unfit) {
			return unfit
		}
	}
	return &UnfitError{Problems: []slot.Problem{slot.TooOld(p.cfg.Slot)}}
}

// closeSession ends a session and returns what the server said against that.
func (p *Pump) closeSession(ctx context.Context, session *replication.Session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.patience())
	defer cancel()
	err := session.Close(ctx)
	if err != nil {
		p.log.Debug("session did not end in an orderly way", "err", err)
	}
	return err
}
