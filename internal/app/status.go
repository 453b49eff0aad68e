package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/slot"
)

// thresholds are what the caller of status still calls well; nil = no threshold.
type thresholds struct {
	lag      *time.Duration
	lagBytes *int64
}

func (a *app) statusCommand() *cli.Command {
	lagSeconds := &setting{
		name: "max-lag-seconds", env: []string{envName("max-lag-seconds")},
		help: "`seconds` that the relay may be behind. If that cannot be told at once, status waits this long for it to catch up",
	}
	lagBytes := &setting{
		name: "max-lag-bytes", env: []string{envName("max-lag-bytes")}, help: "`bytes` of WAL that the relay may be behind, 64MiB say",
	}
	groups := groupPostgres | groupTable | groupSlot | groupNATS | groupStream | groupOutput
	return a.command("status", "say whether all is well, what waits and why; exit code 3 when the verdict is not ok", groups,
		[]*setting{lagSeconds, lagBytes}, func(ctx context.Context, c common) error {
			var limits thresholds
			if seconds, given := a.reader.raw(lagSeconds); given {
				limits.lag = a.readSeconds(lagSeconds, seconds[len(seconds)-1])
			}
			if _, given := a.reader.raw(lagBytes); given {
				n := a.reader.bytes(lagBytes, 0)
				limits.lagBytes = &n
			}
			if err := a.checked(); err != nil {
				return err
			}
			return a.status(ctx, c, limits)
		})
}

// readSeconds reads a number of seconds, 30 or 0.5, or a time like 30s.
func (a *app) readSeconds(s *setting, text string) *time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil || d < 0 {
		a.reader.wrong(s, text, "want a number of seconds, 0 or more")
	}
	return &d
}

func (a *app) status(ctx context.Context, c common, limits thresholds) error {
	report, state, asked := a.ask(ctx, c, limits)
	report.judge()
	var err error
	if c.json {
		err = printJSON(a.stdout, report)
	} else {
		err = printStatus(a.stdout, c, report, state)
	}
	switch {
	case err != nil:
		return err
	case asked != nil:
		return &exitError{code: exitFailed, err: asked, try: advice(asked), quiet: !c.json} // the text has said it
	case report.Verdict != verdictOK:
		return &exitError{code: exitVerdict, quiet: true}
	}
	return nil
}

// ask asks PostgreSQL and NATS at the same time. The error says that PostgreSQL could not be asked; the report is valid
// all the same.
func (a *app) ask(ctx context.Context, c common, limits thresholds) (*statusReport, *slot.State, error) {
	report := &statusReport{Reasons: []reason{}}
	var (
		both      sync.WaitGroup
		stream    publisher.Stream
		streamErr error
		state     slot.State
	)
	both.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, questionTimeout)
		defer cancel()
		stream, streamErr = inspectStream(ctx, c)
	})
	overdue, err := false, withPostgres(ctx, c, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if state, err = inspect(ctx, conn, c.slot); err != nil {
			return err
		}
		return nil
	})
	if err == nil && limits.lag != nil && unconfirmed(state) {
		overdue, err = waitForLag(ctx, c, state, *limits.lag)
	}
	both.Wait()
	if err != nil {
		report.add(broken, codePostgresUnreachable, oneLine(err.Error()), advice(err))
		report.addStream(c, stream, streamErr)
		return report, nil, err
	}
	report.addPostgres(c, &state)
	report.addLag(&state, limits, overdue)
	report.addStream(c, stream, streamErr)
	return report, &state, nil
}

func inspect(ctx context.Context, conn *pgx.Conn, cfg slot.Config) (slot.State, error) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	state, err := slot.Inspect(ctx, conn, cfg)
	if err != nil {
		return state, postgresError("cannot ask PostgreSQL", err)
	}
	return state, nil
}

func unconfirmed(s slot.State) bool {
	return s.Slot != nil && s.Slot.Active && s.Slot.UnconfirmedBytes != nil && *s.Slot.UnconfirmedBytes > 0 && s.FlushLSN != nil
}

// waitForLag says whether the WAL that was there at the start is still unconfirmed after limit: then the relay is at
// least that far behind. No clock in a row is trusted for this.
func waitForLag(ctx context.Context, c common, start slot.State, limit time.Duration) (overdue bool, err error) {
	const every = 200 * time.Millisecond
	deadline := time.Now().Add(limit)
	err = withPostgres(ctx, c, func(ctx context.Context, conn *pgx.Conn) error {
		for {
			now, err := inspect(ctx, conn, c.slot)
			if err != nil {
				return err
			}
			reached := now.Slot != nil && now.Slot.ConfirmedFlushLSN != nil && *now.Slot.ConfirmedFlushLSN >= *start.FlushLSN
			if reached || time.Now().After(deadline) {
				overdue = !reached
				return nil
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(min(every, max(time.Until(deadline), time.Millisecond))):
			}
		}
	})
	return overdue, err
}

func (r *statusReport) addPostgres(c common, state *slot.State) {
	for _, p := range state.Problems(c.slot) {
		how := warning
		if p.Severity == slot.Broken {
			how = broken
		}
		r.add(how, string(p.Code), p.Text, p.Fix)
	}
	s := state.Slot
	if s == nil {
		return
	}
	r.Slot, r.Leader = reportSlot(s), reportLeader(s.Holder)
	if r.Leader == nil && s.ActivePID != nil {
		r.Leader = &leaderReport{PID: *s.ActivePID}
	}
	if !s.Active && s.ActivePID == nil && s.Type == "logical" && !s.Lost() && !s.Unfinished() {
		r.add(broken, codeNoLeader, fmt.Sprintf("no relay holds the slot %q: nothing is being relayed", s.Name), "relay run")
	}
}

// addLag reports what a process other than the leader can know.
func (r *statusReport) addLag(state *slot.State, limits thresholds, overdue bool) {
	s := state.Slot
	if s == nil || s.Type != "logical" {
		return
	}
	r.Lag.Bytes = s.UnconfirmedBytes
	switch {
	case s.UnconfirmedBytes != nil && *s.UnconfirmedBytes == 0:
		zero, none, exact := 0.0, int64(0), true
		r.Pending = pendingReport{Events: &none, Exact: &exact, OldestAgeSeconds: &zero}
		if s.Active {
			r.Lag.Seconds = &zero
		} else {
			r.add(note, codeLagSecondsUnknown, "no relay runs that could say how far behind it is", "")
		}
	default:
		r.add(note, codePendingUnknown, "WAL is unconfirmed: only the relay itself knows how many events are in it", "")
		r.add(note, codeLagSecondsUnknown, "only the relay itself knows how old the oldest waiting event is", "")
	}
	if limits.lagBytes != nil && r.Lag.Bytes != nil && *r.Lag.Bytes > *limits.lagBytes {
		r.add(behind, codeLagBytesExceeded, fmt.Sprintf("%s of WAL are unconfirmed, over the limit of %s", size(*r.Lag.Bytes), size(*limits.lagBytes)), "")
	}
	if overdue {
		r.add(behind, codeLagSecondsExceeded, fmt.Sprintf("what was written %s ago is still unconfirmed", span(*limits.lag)), "")
	}
}

func (r *statusReport) addStream(c common, s publisher.Stream, err error) {
	if err == nil {
		r.Stream = reportStream(s)
		for _, p := range s.Problems(c.subject.String()) {
			how := warning
			if p.Severity == publisher.Broken {
				how = broken
			}
			r.add(how, p.Code, p.Text, p.Fix)
		}
		return
	}
	code := codeStreamUnknown
	fix := advice(err)
	_, unreachable := errors.AsType[*publisher.ConnectError](err)
	switch {
	case errors.Is(err, publisher.ErrStreamMissing):
		code, fix = codeStreamMissing, "relay stream create --stream "+c.stream
		err = fmt.Errorf("stream %s does not exist on %s", c.stream, c.nats.Servers())
	case unreachable:
		code = codeNATSUnreachable
	}
	r.add(broken, code, oneLine(err.Error()), fix)
}

// advice returns the line to type that an error carries.
func advice(err error) string {
	if e, ok := errors.AsType[*exitError](err); ok {
		return strings.TrimSpace(e.try)
	}
	return ""
}
