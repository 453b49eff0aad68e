package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// statusQuestion is what status was told, checked.
type statusQuestion struct {
	common
	limits thresholds
	relay  relayAddress
	rates  func(slot.State) walRates // from earlier looks; nil if this is the only one
}

func (a *app) statusCommand() *cli.Command {
	own := func(name, def, help string) *setting {
		return &setting{name: name, def: def, help: help, env: []string{envName(name)}}
	}
	relay := own("relay", "http://"+defaultListen, "`URL` of the relay that leads, for its own figures; by default the local port is asked, and nothing said if "+
		"the leader does not answer there; empty = nobody is asked")
	relay.optional = true
	watch := own("watch", "", "look again and again until stopped: a live view on a terminal, else a line (a document with --json) each time")
	watch.bool = true
	interval := own("interval", "2s", "`time` between two looks of --watch")
	lagSeconds := own("max-lag-seconds", "", "`seconds` that the relay may be behind. If that cannot be told at once, status waits this long for it to catch up")
	lagBytes := own("max-lag-bytes", "", "`bytes` of WAL that the relay may be behind, 64MiB say")
	groups := groupPostgres | groupTable | groupSlot | groupNATS | groupStream | groupOutput
	return a.command("status", "say whether all is well, what waits and why; exit code 3 when the verdict is not ok", groups,
		[]*setting{relay, watch, interval, lagSeconds, lagBytes}, func(ctx context.Context, c common) error {
			q := statusQuestion{common: c, relay: a.readRelay(relay)}
			if seconds, given := a.reader.raw(lagSeconds); given {
				q.limits.lag = a.readSeconds(lagSeconds, seconds[len(seconds)-1])
			}
			if _, given := a.reader.raw(lagBytes); given {
				n := a.reader.bytes(lagBytes, 0)
				q.limits.lagBytes = &n
			}
			live, every := a.reader.flag(watch), a.reader.duration(interval, minWatchInterval)
			if err := a.checked(); err != nil {
				return err
			}
			if live {
				return a.watchStatus(ctx, q, every)
			}
			return a.status(ctx, q)
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

func (a *app) status(ctx context.Context, q statusQuestion) error {
	report, state, asked := q.look(ctx)
	var err error
	if q.json {
		err = printJSON(a.stdout, report)
	} else {
		err = printStatus(a.stdout, q.common, report, state)
	}
	switch {
	case err != nil:
		return err
	case asked != nil:
		return &exitError{code: exitFailed, err: asked, try: advice(asked), quiet: !q.json} // the text has said it
	case report.Verdict != verdictOK:
		return &exitError{code: exitVerdict, quiet: true}
	}
	return nil
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
	r.Slot.MaxRetainedBytes = state.MaxSlotWALKeepBytes
	if r.Leader == nil && s.ActivePID != nil {
		r.Leader = &leaderReport{PID: *s.ActivePID}
	}
	if !state.InRecovery && !s.Active && s.ActivePID == nil && s.Type == "logical" && !s.Lost() && !s.Unfinished() {
		r.add(broken, codeNoLeader, fmt.Sprintf("no relay holds the slot %q: nothing is being relayed", s.Name), "relay run")
	}
}

// addLag says how far behind the relay is. In seconds only the leader knows, unless nothing waits.
func (r *statusReport) addLag(s *slot.Slot, leader *selfStatus, limits thresholds, overdue bool) {
	r.Lag.Bytes = s.UnconfirmedBytes
	switch zero := 0.0; {
	case leader != nil && leader.LagSeconds != nil:
		r.Lag.Seconds = leader.LagSeconds
	case s.Active && s.UnconfirmedBytes != nil && *s.UnconfirmedBytes == 0:
		r.Lag.Seconds = &zero
	case !s.Active:
		r.add(note, codeLagSecondsUnknown, "no relay runs that could say how far behind it is", "")
	case leader != nil:
		r.add(note, codeLagSecondsUnknown, "PostgreSQL has not told the relay yet that it has nothing more to send", "")
	default:
		r.add(note, codeLagSecondsUnknown, "only the relay itself knows how old the oldest waiting event is (--relay)", "")
	}
	if limits.lagBytes != nil && r.Lag.Bytes != nil && *r.Lag.Bytes > *limits.lagBytes {
		r.add(behind, codeLagBytesExceeded, fmt.Sprintf("%s of WAL are unconfirmed, over the limit of %s", size(*r.Lag.Bytes), size(*limits.lagBytes)), "")
	}
	switch {
	case overdue:
		r.add(behind, codeLagSecondsExceeded, fmt.Sprintf("what was written %s ago is still unconfirmed", span(*limits.lag)), "")
	case limits.lag != nil && r.Lag.Seconds != nil && *r.Lag.Seconds > limits.lag.Seconds():
		r.add(behind, codeLagSecondsExceeded, fmt.Sprintf("the oldest waiting event is %s old, over the limit of %s",
			span(longTime(*r.Lag.Seconds)), span(*limits.lag)), "")
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
