package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/publisher"
)

// tailLast is how many of the newest messages tail begins with unless told otherwise.
const tailLast = 10

// tailPause is how long tail waits before it follows a stream again whose connection was lost.
const tailPause = time.Second

func (a *app) tailCommand() *cli.Command {
	own := func(name, def, help string) *setting {
		return &setting{name: name, def: def, help: help, env: []string{envName(name)}}
	}
	since := own("since", "", fmt.Sprintf("`duration or sequence` to begin at, 10m or 1204331 say; the last %d messages if not given", tailLast))
	limit := own("limit", "", "`number` of messages after which to stop")
	noFollow := own("no-follow", "", "stop at the newest message that is there")
	noFollow.bool = true
	groups := groupSlot | groupNATS | groupStream | groupOutput
	return a.command("tail", "show what goes out, one line an event; only reads the stream", groups, []*setting{since, limit, noFollow},
		func(ctx context.Context, c common) error {
			t := tail{c: c, out: a.stdout, limit: a.reader.number(limit, 1, 1<<40)}
			t.cfg = publisher.FollowConfig{Stream: c.stream, Last: tailLast, Once: a.reader.flag(noFollow)}
			if t.limit > 0 && (t.cfg.Once || t.limit < tailLast) {
				t.cfg.Last = uint64(t.limit)
			}
			a.readSince(since, &t.cfg)
			if err := a.checked(); err != nil {
				return err
			}
			if a.ownsProcess {
				var stop func()
				ctx, stop = withSignals(ctx, exitNow)
				defer stop()
			}
			return t.run(ctx)
		})
}

// readSince reads where to begin.
func (a *app) readSince(s *setting, cfg *publisher.FollowConfig) {
	text := a.reader.text(s)
	if text == "" {
		return
	}
	cfg.Last = 0
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > 0 {
		cfg.From = n
		return
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		a.reader.wrong(s, text, "want a time with its unit, 10m say, or a sequence of the stream from 1 on")
	}
	cfg.Since = time.Now().Add(-d)
}

// tail prints a stream's messages.
type tail struct {
	c     common
	out   io.Writer
	cfg   publisher.FollowConfig
	limit int // 0: none

	shown int
}

var errTailEnough = errors.New("as many messages as were asked for")

// run follows the stream over as many connections as it takes, until ctx ends: that is no error. What is wrong from the
// start is one.
func (t *tail) run(ctx context.Context) error {
	for first := true; ; first = false {
		began := t.cfg.From
		err := publisher.Follow(ctx, t.c.nats, t.cfg, t.show)
		switch {
		case err == nil, errors.Is(err, errTailEnough), ctx.Err() != nil:
			return nil
		case first && t.shown == 0, t.cfg.Once, errors.As(err, new(*tailWriteError)):
			return tailError(t.c, err)
		case t.cfg.From == began && errors.Is(err, publisher.ErrStreamMissing):
			return tailError(t.c, err)
		}
		t.c.log.Info("the stream cannot be followed at the moment, trying again", "reason", oneLine(err.Error()))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tailPause):
		}
	}
}

func tailError(c common, err error) error {
	if errors.Is(err, publisher.ErrStreamMissing) {
		return failed(fmt.Errorf("stream %s does not exist on %s", c.stream, c.nats.Servers()), "relay stream create --stream "+c.stream)
	}
	return natsError(c.nats.Servers(), err)
}

// tailWriteError is an answer that nobody takes.
type tailWriteError struct{ err error }

func (e *tailWriteError) Error() string { return e.err.Error() }

func (e *tailWriteError) Unwrap() error { return e.err }

func (t *tail) show(m publisher.Message) error {
	t.cfg.From, t.cfg.Since, t.cfg.Last = m.Sequence+1, time.Time{}, 0
	var err error
	if t.c.json {
		err = json.NewEncoder(t.out).Encode(tailEventOf(m, t.c.slot.Slot))
	} else {
		_, err = io.WriteString(t.out, tailLine(m, t.c.slot.Slot))
	}
	if err != nil {
		return &tailWriteError{err}
	}
	if t.shown++; t.shown == t.limit {
		return errTailEnough
	}
	return nil
}

// What varies in length comes last, so that the columns hold.
const tailFormat = "%-18s  %s  %8s  %8s  %-18s %-36s  %s\n"

func tailLine(m publisher.Message, slot string) string {
	age, position := "-", "-"
	if !m.CommittedAt.IsZero() {
		age = shortSpan(m.StoredAt.Sub(m.CommittedAt).Seconds())
	}
	subject := m.Subject
	switch {
	case !m.FromRelay():
		subject += "  (foreign: no relay wrote it)"
	case m.Origin.Slot != slot:
		subject += "  (foreign: of slot " + m.Origin.String() + ")"
		fallthrough
	default:
		position = m.Position.String()
	}
	id := m.EventID
	if id == "" {
		id = "-"
	}
	return fmt.Sprintf(tailFormat, m.StoredAt.Local().Format("01-02 15:04:05.000"), fmt.Sprintf("%8d", m.Sequence), age,
		size(int64(m.PayloadBytes)), position, id, subject)
}

// tailEvent is one line of tail --json. Its keys are stable; unknown is null.
type tailEvent struct {
	Sequence    uint64     `json:"sequence"`
	StoredAt    time.Time  `json:"stored_at"`
	Subject     string     `json:"subject"`
	ID          *string    `json:"id"`
	Position    *string    `json:"position"` // as in the header Relay-Position
	CommittedAt *time.Time `json:"committed_at"`
	AgeSeconds  *float64   `json:"age_seconds"` // from the commit to being stored, by two clocks; never below 0
	AggregateID *string    `json:"aggregate_id"`
	Bytes       int        `json:"bytes"`   // of the payload
	Foreign     bool       `json:"foreign"` // not written by a relay of this slot
}

func tailEventOf(m publisher.Message, slot string) tailEvent {
	e := tailEvent{
		Sequence: m.Sequence, StoredAt: m.StoredAt.UTC(), Subject: m.Subject, ID: orNil(m.EventID), AggregateID: orNil(m.AggregateID),
		Bytes: m.PayloadBytes, Foreign: !m.FromRelay() || m.Origin.Slot != slot,
	}
	if m.FromRelay() {
		text := outbox.FormatPosition(m.Origin, m.Position)
		e.Position = &text
	}
	if !m.CommittedAt.IsZero() {
		at := m.CommittedAt.UTC()
		e.CommittedAt, e.AgeSeconds = &at, seconds(max(0, m.StoredAt.Sub(at)))
	}
	return e
}
