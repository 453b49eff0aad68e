package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/publisher"
)

// publishOnly stores messages like those of the drain, made on the spot, with the relay's own publisher: the drain without
// PostgreSQL. So it is the same stream, the same fence, the same window, and the same way to publish.
func publishOnly(ctx context.Context, in input, m *meter) error {
	template, err := outbox.ParseTemplate(in.Subject)
	if err != nil {
		return err
	}
	p := publisher.New(publisher.Config{
		Conn: publisher.ConnConfig{URL: in.NATS}, Stream: in.Stream, Template: template,
	}, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	defer p.Close()
	awake := make(chan struct{}, 1)
	p.Begin(outbox.Origin{Slot: in.Slot, System: "7412345678901234567"}, func() {
		select {
		case awake <- struct{}{}:
		default:
		}
	})
	plan := p.Resume(publisher.NeedSession, 0)
	res, err := plan.Run(ctx)
	if err != nil {
		return err
	}
	if err := p.Apply(plan, res); err != nil {
		return err
	}
	events := newMaker(in)
	m.start()
	for p.Stored() < uint64(in.Events) {
		if err := turn(ctx, p, in.Events, events, awake); err != nil {
			return err
		}
	}
	m.stop()
	return nil
}

// turn goes once round a loop like the pump's: fill the window, send, wait, take the answers.
func turn(ctx context.Context, p *publisher.Publisher, events int, m *maker, awake <-chan struct{}) error {
	const piece = 512 // read between two looks at the answers, about what PostgreSQL has ready
	for range piece {
		if p.Full() || p.Read() == uint64(events) {
			break
		}
		m.event(p.Next())
		p.Admit()
	}
	now := time.Now()
	more, err := p.Publish(now)
	if err == nil && more {
		err = errors.New("the stream was not empty")
	}
	if err == nil {
		err = p.Collect(now)
	}
	if err != nil {
		return fmt.Errorf("after %d of %d events: %w", p.Stored(), events, err)
	}
	if waiting := p.Full() || p.Read() == uint64(events); waiting && p.WakeWhen() {
		select {
		case <-awake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second): // Collect also watches for answers that do not come
		}
	}
	return nil
}

// maker makes events of the shape that the backlog's rows have. It does so many at a time, so that what is measured is the
// publisher.
type maker struct {
	in    input
	proto outbox.Event // what all have in common
	ids   []string     // of the next events
	made  int
}

func newMaker(in input) *maker {
	const order = 123456
	body := strings.Repeat("x", max(0, in.Payload-len(`{"text": "", "order": 123456}`)))
	m := &maker{in: in, proto: outbox.Event{
		Subject: strings.ReplaceAll(in.Subject, "{topic}", "order.created"), AggregateID: fmt.Sprintf("order-%d", order), Sequence: "1",
		Payload: fmt.Appendf(nil, `{"text": "%s", "order": %d}`, body, order), CommitTime: time.Now().UTC(),
	}}
	for i := range in.Headers {
		m.proto.Headers = append(m.proto.Headers, outbox.Header{Name: fmt.Sprintf("X-Header-%d", i), Value: fmt.Sprintf("value-of-header-%d", i)})
	}
	return m
}

func (m *maker) event(ev *outbox.Event) {
	if len(m.ids) == 0 {
		m.makeIDs()
	}
	*ev = m.proto
	ev.ID, m.ids = m.ids[0], m.ids[1:]
	tx := m.made / m.in.PerTx
	ev.Position = outbox.Position{CommitLSN: pglogrepl.LSN(0x1000000 + 1000*tx), Index: uint32(m.made % m.in.PerTx)}
	m.made++
}

// makeIDs makes the ids of the next events, all parts of one string.
func (m *maker) makeIDs() {
	const some, size = 1024, 36
	var b []byte
	for i := range some {
		b = fmt.Appendf(b, "%08x-0000-4000-8000-000000000000", m.made+i)
	}
	all := string(b)
	for ; all != ""; all = all[size:] {
		m.ids = append(m.ids, all[:size])
	}
}
