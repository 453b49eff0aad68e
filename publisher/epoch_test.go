package publisher

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// An epoch that has ended still takes the answers that are out: only they tell whether an answer names its event for
// certain, and waiting for those that are not taken would cost the whole bound.
func TestSettleTakesTheAnswersThatAreOut(t *testing.T) {
	t.Parallel()
	srv := startServer(t, &server.Options{})
	others := dial(t, ConnConfig{URL: srv.ClientURL()})
	requests, err := others.SubscribeSync("s.a")
	if err != nil {
		t.Fatal(err)
	}
	if err := others.Flush(); err != nil {
		t.Fatal(err)
	}
	l, err := dialLink(t.Context(), ConnConfig{URL: srv.ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.nc.Close)
	woken := make(chan struct{}, 10)
	e, err := newEpoch(l, 0, testOrigin.String(), newAnswerParser("S", ""), func() { woken <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	messages := make([]*nats.Msg, 2)
	for i := range messages {
		ev := event(strings.Repeat("e", i+1), 1)
		if err := e.send(&ev); err != nil {
			t.Fatal(err)
		}
		if messages[i], err = requests.NextMsg(5 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	respond := func(i int, text string) {
		if err := messages[i].Respond([]byte(text)); err != nil {
			t.Error(err)
		}
	}
	respond(1, `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 0"},"stream":"S","seq":0}`)
	<-woken
	e.end() // as the loop does when it sees the failure
	respond(0, `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}`)
	began := time.Now()
	e.settle(t.Context())
	if took := time.Since(began); e.answered.Load() != 2 || took > settleTimeout/2 {
		t.Errorf("%d of 2 answers after %s", e.answered.Load(), took)
	}
	if e.alone() {
		t.Error("one of two refused messages counts as alone")
	}
	if e.sub.IsValid() {
		t.Error("answers are still taken")
	}
}

// An answer that never comes is waited for once, however often the way to the next epoch fails.
func TestSettleWaitsOnce(t *testing.T) {
	t.Parallel()
	srv := startServer(t, &server.Options{})
	others := dial(t, ConnConfig{URL: srv.ClientURL()})
	if _, err := others.SubscribeSync("s.a"); err != nil {
		t.Fatal(err)
	}
	if err := others.Flush(); err != nil {
		t.Fatal(err)
	}
	l, err := dialLink(t.Context(), ConnConfig{URL: srv.ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.nc.Close)
	e, err := newEpoch(l, 0, testOrigin.String(), newAnswerParser("S", ""), func() {})
	if err != nil {
		t.Fatal(err)
	}
	ev := event("e", 1)
	if err := e.send(&ev); err != nil {
		t.Fatal(err)
	}
	e.end()
	began := time.Now()
	for range 3 {
		e.settle(t.Context())
	}
	if took := time.Since(began); took < settleTimeout || took > 2*settleTimeout {
		t.Errorf("waited for %s, want %s", took, settleTimeout)
	}
}

// What the next epoch finds in the stream is stored as soon as it begins: if that is all, nothing waits any more.
func TestFoundIsStoredAtOnce(t *testing.T) {
	t.Parallel()
	d := newDriver(t, nil)
	d.begin(0)
	d.read(event("a", 1), event("b", 2))
	if _, err := d.p.Publish(time.Now()); err != nil { // one at first
		t.Fatal(err)
	}
	d.acked(1)
	d.p.endEpoch() // without a look at the answers
	for i, want := range []int{1, 0} {
		if err := d.resume(NeedEpoch, 0); err != nil {
			t.Fatal(err)
		}
		if n, _ := d.p.Waiting(); n != want || d.p.Stored() != uint64(2-want) || d.p.Counts().Skipped != uint64(i+1) {
			t.Errorf("%d events wait, %d are stored, %+v, want %d waiting", n, d.p.Stored(), d.p.Counts(), want)
		}
		if i == 0 {
			if _, err := d.p.Publish(time.Now()); err != nil {
				t.Fatal(err)
			}
			d.acked(1)
			d.p.endEpoch()
		}
	}
}

// acked waits until so many of the epoch's messages are acknowledged, and takes no notice of it.
func (d *driver) acked(n uint64) {
	d.t.Helper()
	sandbox.WaitFor(d.t, 5*time.Second, "answers", func() (bool, error) { return d.p.epoch.acked.Load() >= n, nil })
}
