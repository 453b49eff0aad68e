package publisher

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/outbox"
)

func uuidOf(i int) string { return fmt.Sprintf("0190b5a0-0000-7000-8000-%012d", i) }

func series(from, to int) (events []outbox.Event, ids []string) {
	for i := from; i <= to; i++ {
		events = append(events, event(uuidOf(i), pglogrepl.LSN(i*0x100)))
		ids = append(ids, uuidOf(i))
	}
	return events, ids
}

func (d *driver) expect(want []string) {
	d.t.Helper()
	if got := d.ids(); !slices.Equal(got, want) {
		d.t.Fatalf("the stream has %d messages, want %d:\n got %v\nwant %v", len(got), len(want), got, want)
	}
}

func (d *driver) expectCounts(want Counts) {
	d.t.Helper()
	got := d.p.Counts()
	want.Epochs = got.Epochs
	if got != want {
		d.t.Errorf("counts are %+v, want %+v", got, want)
	}
}

func TestPublishesInOrder(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	d.begin(0)
	events, ids := series(1, 900)
	d.read(events...)
	d.mustRun()
	d.expect(ids)
	d.expectCounts(Counts{Published: 900})
	if d.p.Counts().Epochs != 1 {
		t.Errorf("it took %d epochs", d.p.Counts().Epochs)
	}
}

func TestMessageForm(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	d.begin(0)
	ev := event(uuidOf(1), 0x1A2B3C8)
	ev.Position.Index = 3
	ev.CommitTime = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	ev.AggregateID, ev.Sequence = "order-7", "12"
	ev.Headers = []outbox.Header{{Name: "traceparent", Value: "00-x"}, {Name: "x", Value: "1"}, {Name: "x", Value: "2"}}
	plain := event(uuidOf(2), 0x1A2B4C8)
	d.read(ev, plain)
	d.mustRun()

	want := nats.Header{
		"Nats-Msg-Id": {uuidOf(1)}, "Nats-Expected-Last-Sequence": {"0"},
		"Relay-Position":     {"outbox_relay@7412345678901234567 0/1A2B3C8 3"},
		"Relay-Committed-At": {"2026-01-02T03:04:05.000006Z"},
		"Relay-Aggregate-Id": {"order-7"}, "Relay-Sequence": {"12"},
		"traceparent": {"00-x"}, "x": {"1", "2"},
	}
	m, err := d.stream.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(m.Header) != fmt.Sprint(want) || m.Subject != "s.a" || string(m.Data) != "{}" {
		t.Errorf("message is %s %v %s\nwant headers %v", m.Subject, m.Header, m.Data, want)
	}
	if m, err = d.stream.GetMsg(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if len(m.Header) != 4 {
		t.Errorf("headers of the event before are left over: %v", m.Header)
	}
}

// After a lost session PostgreSQL sends again what was not confirmed: the ids in the stream tell what is there already,
// long after the duplicate window.
func TestResumeSkipsWhatIsStored(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	d.begin(0)
	events, ids := series(1, 500)
	d.read(events[:300]...)
	d.mustRun()

	d.begin(0x100 * 101) // the first 100 are confirmed
	d.read(events[100:]...)
	d.mustRun()
	d.expect(ids)
	d.expectCounts(Counts{Published: 500, Skipped: 200})
}

// I9: after a failover that lost transactions the same LSNs stand for other events. Skipping goes by id.
func TestI9_TwoTimelines(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	d.begin(0)
	events, ids := series(1, 20)
	d.read(events...) // 11 to 20 are lost on the way to the new primary
	d.mustRun()

	d.begin(0x100 * 6) // confirmed before 6
	d.read(events[5:10]...)
	want := ids
	for i := 11; i <= 25; i++ { // at the same positions as those that were lost, and beyond
		id := uuidOf(1000 + i)
		d.read(event(id, pglogrepl.LSN(i*0x100)))
		want = append(want, id)
	}
	d.mustRun()
	d.expect(want)
	d.expectCounts(Counts{Published: 35, Skipped: 5})
}

// I9: an id counts only up to the L that is the first message's base. What arrives behind L makes the first message
// fail, and the next epoch finds it.
func TestI9_StaleLastSequence(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	d.begin(0)
	events, ids := series(1, 10)
	d.read(events[:4]...)
	plan := d.p.Resume(NeedEpoch, 0)
	res, err := plan.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The bytes of a dead connection arrive only now: the same events, at their own places.
	late := &Publisher{}
	*late = *New(d.p.cfg, d.p.log)
	t.Cleanup(late.Close)
	ghost := &driver{t: t, p: late, js: d.js, stream: d.stream, awake: make(chan struct{}, 1)}
	ghost.begin(0)
	ghost.read(events[:2]...)
	ghost.mustRun()

	if err := d.p.Apply(plan, res); err != nil {
		t.Fatal(err)
	}
	d.read(events[4:]...)
	d.mustRun()
	d.expect(ids)
	if len(d.ends) != 1 || d.ends[0].Reason != ReasonRefused || d.ends[0].Code != 10071 {
		t.Errorf("epochs ended with %v, want one refusal for its sequence", d.ends)
	}
	d.expectCounts(Counts{Published: 8, Skipped: 2})
}

// A foreign message in the middle of the flight refuses one event and lets the next one fit. Nothing is lost or doubled, and
// a broken order is reported.
func TestForeignWriterIsReported(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	d.begin(0)
	events, ids := series(1, 600)
	for i := 0; i < len(events); i += 60 {
		d.read(events[i : i+60]...)
		if _, err := d.p.Publish(time.Now()); err != nil {
			t.Fatal(err)
		}
		d.foreign("")
		d.mustRun()
	}
	var own []string
	for _, id := range d.ids() {
		if id != "" {
			own = append(own, id)
		}
	}
	sorted := slices.Sorted(slices.Values(own))
	if !slices.Equal(sorted, ids) {
		t.Fatalf("the stream has %d of ours, want %d, each once", len(own), len(ids))
	}
	if broken := !slices.Equal(own, ids); broken != (d.p.Counts().Reorders > 0) {
		t.Errorf("the order is broken: %v, reported: %d", broken, d.p.Counts().Reorders)
	}
	if d.p.Counts().Foreign == 0 {
		t.Error("no foreign message was counted")
	}
}

// C22: an id that the stream has from elsewhere counts as stored, for the one event that has it.
func TestC22_DuplicateIsCreditedToItsEventOnly(t *testing.T) {
	t.Parallel()
	d := newDriver(t, func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute })
	d.begin(0)
	events, ids := series(1, 100)
	d.foreign(ids[49])
	d.read(events...)
	d.mustRun()
	got := slices.Sorted(slices.Values(d.ids()))
	if !slices.Equal(got, ids) {
		t.Fatalf("the stream has %d messages, want %d, each id once", len(got), len(ids))
	}
	if c := d.p.Counts(); c.Duplicates != 1 || c.Published != 99 {
		t.Errorf("counts are %+v", c)
	}
}

func TestTailInPieces(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	d.begin(0)
	events, ids := series(1, 900)
	d.read(events[:700]...)
	d.mustRun()
	d.p.maxTail = 64
	d.begin(0)
	for i := 0; i < len(events); i += 30 {
		d.read(events[i : i+30]...)
		d.mustRun()
	}
	d.expect(ids)
	d.expectCounts(Counts{Published: 900, Skipped: 700})
	if n := len(d.p.tail.ids); n > 64 {
		t.Errorf("%d ids are held", n)
	}
}

// A failed epoch must not forget the ids of events that PostgreSQL has not sent again yet.
func TestTailSurvivesAnEpoch(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	d.begin(0)
	events, ids := series(1, 400)
	d.read(events[:300]...)
	d.mustRun()
	d.begin(0)
	d.read(events[:100]...)
	d.mustRun()
	d.p.link.nc.Close()
	d.read(events[100:]...)
	d.mustRun()
	d.expect(ids)
	d.expectCounts(Counts{Published: 400, Skipped: 300})
}

func TestPoisonStopsBeforeTheWire(t *testing.T) {
	t.Parallel()
	d := newDriver(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
	d.begin(0)
	events, ids := series(1, 5)
	events[3].Payload = make([]byte, 3000)
	d.read(events...)
	err := d.run()
	var poison *outbox.PoisonError
	if !errors.As(err, &poison) || poison.ID != ids[3] || !strings.Contains(poison.Reason, "2000") {
		t.Fatalf("error is %v, want poison of %s with the limit", err, ids[3])
	}
	if d.p.Stored() != 3 {
		t.Errorf("%d are stored, want the 3 before it", d.p.Stored())
	}
	d.expect(ids[:3])
}

// The stream's limit can shrink while an epoch runs: then the refusal counts only for an event that was alone in flight.
func TestPoisonByTheServer(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	d.begin(0)
	cfg := d.stream.CachedInfo().Config
	cfg.MaxMsgSize = 2000
	if _, err := d.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	events, ids := series(1, 50)
	events[30].Payload = make([]byte, 3000)
	d.read(events...)
	err := d.run()
	var poison *outbox.PoisonError
	if !errors.As(err, &poison) || poison.ID != ids[30] {
		t.Fatalf("error is %v, want poison of %s", err, ids[30])
	}
	d.expect(ids[:30])
}

func TestSkipEvent(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	events, ids := series(1, 5)
	events[2].Subject = "s..a"
	d.p.cfg.Skip = map[string]bool{outbox.FormatPosition(testOrigin, events[2].Position): true}
	d.begin(0)
	d.read(events...)
	d.mustRun()
	d.expect(slices.Delete(ids, 2, 3))
	d.expectCounts(Counts{Published: 4, Dropped: 1})
}

func TestStreamFullIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := newDriver(t, func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 3, jetstream.DiscardNew })
	d.begin(0)
	events, ids := series(1, 6)
	d.read(events...)
	now := time.Now()
	for d.p.Stored() < 3 {
		if err := d.p.Collect(now); err != nil {
			t.Fatal(err)
		}
		if _, err := d.p.Publish(now); err != nil {
			t.Fatal(err)
		}
		if d.p.WakeWhen() {
			<-d.awake
		}
	}
	cfg := d.stream.CachedInfo().Config
	cfg.MaxMsgs = 100
	if _, err := d.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	d.mustRun()
	d.expect(ids)
}

func TestStreamCameBackShorter(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	d.begin(0)
	events, _ := series(1, 5)
	d.read(events...)
	d.mustRun()
	if err := d.js.DeleteStream(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.js.CreateStream(t.Context(), d.stream.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	err := d.resume(NeedEpoch, 0)
	var shorter *RegressedError
	if !errors.As(err, &shorter) || shorter.Last != 0 || shorter.Acked != 5 {
		t.Fatalf("error is %v, want a stream that ends at 0 after 5 were acked", err)
	}
	d.p.Regressed(shorter)
	d.begin(0x300)
	d.read(events[2:]...)
	d.mustRun()
	d.expect([]string{uuidOf(3), uuidOf(4), uuidOf(5)})
}
