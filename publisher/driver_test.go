package publisher

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/outbox"
)

// driver is a loop around a publisher, as the pump has one, without PostgreSQL.
type driver struct {
	t      *testing.T
	p      *Publisher
	js     jetstream.JetStream
	stream jetstream.Stream
	awake  chan struct{}
	ends   []*EpochError
}

var testOrigin = outbox.Origin{Slot: "outbox_relay", System: "7412345678901234567"}

// newDriver starts a publisher on a server and stream of its own.
func newDriver(t *testing.T, change func(*jetstream.StreamConfig)) *driver {
	t.Helper()
	srv := startServer(t, &server.Options{JetStream: true})
	nc := dial(t, ConnConfig{URL: srv.ClientURL()})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Duplicates: 100 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	stream, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, js: js, stream: stream}
	d.start(srv.ClientURL())
	return d
}

func (d *driver) start(url string) {
	d.t.Helper()
	template, err := outbox.ParseTemplate("s.{topic}")
	if err != nil {
		d.t.Fatal(err)
	}
	d.awake = make(chan struct{}, 1)
	p := New(Config{Conn: ConnConfig{URL: url}, Stream: "S", Template: template, Window: 1000, AckTimeout: 5 * time.Second}, sandbox.Logger(d.t))
	d.p = p
	d.t.Cleanup(p.Close)
}

// begin starts a session and an epoch.
func (d *driver) begin(confirmed pglogrepl.LSN) {
	d.t.Helper()
	awake := d.awake
	d.p.Begin(testOrigin, func() {
		select {
		case awake <- struct{}{}:
		default:
		}
	})
	if err := d.resume(NeedSession, confirmed); err != nil {
		d.t.Fatal(err)
	}
}

func (d *driver) resume(need Need, confirmed pglogrepl.LSN) error {
	plan := d.p.Resume(need, confirmed)
	res, err := plan.Run(d.t.Context())
	if err != nil {
		return err
	}
	return d.p.Apply(plan, res)
}

// event is one of a transaction of its own.
func event(id string, commit pglogrepl.LSN) outbox.Event {
	return outbox.Event{
		ID: id, Subject: "s.a", Payload: []byte(`{}`), CommitTime: time.Unix(1_700_000_000, 0).UTC(),
		Position: outbox.Position{CommitLSN: commit},
	}
}

func (d *driver) read(events ...outbox.Event) {
	for i := range events {
		*d.p.Next() = events[i]
		d.p.Admit()
	}
}

// run goes on until everything that was read is stored, or until it cannot.
func (d *driver) run() error {
	d.t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for {
		now := time.Now()
		var end *EpochError
		if err := d.p.Collect(now); errors.As(err, &end) {
			d.ends = append(d.ends, end)
			if err := d.resume(NeedEpoch, 0); err != nil {
				return err
			}
		}
		more, err := d.p.Publish(now)
		if err != nil && d.p.Flight() == 0 {
			return err
		}
		if more && d.p.Flight() == 0 {
			if err := d.resume(NeedTail, 0); err != nil {
				return err
			}
			continue
		}
		if events, _ := d.p.Waiting(); events == 0 {
			return nil
		}
		if !d.p.WakeWhen() {
			continue
		}
		select {
		case <-d.awake:
		case <-limit.C:
			return fmt.Errorf("stuck with %d of %d stored", d.p.Stored(), d.p.Read())
		}
	}
}

func (d *driver) mustRun() {
	d.t.Helper()
	if err := d.run(); err != nil {
		d.t.Fatal(err)
	}
}

// ids reads the stream's event ids, one request a message: not the way the publisher itself reads.
func (d *driver) ids() []string {
	d.t.Helper()
	info, err := d.stream.Info(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	var ids []string
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := d.stream.GetMsg(d.t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			d.t.Fatal(err)
		}
		ids = append(ids, m.Header.Get("Nats-Msg-Id"))
	}
	return ids
}

// foreign publishes a message that no relay wrote.
func (d *driver) foreign(id string) {
	d.t.Helper()
	m := nats.NewMsg("s.a")
	if id != "" {
		m.Header.Set("Nats-Msg-Id", id)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), 5*time.Second)
	defer cancel()
	if _, err := d.js.PublishMsg(ctx, m); err != nil {
		d.t.Fatal(err)
	}
}
