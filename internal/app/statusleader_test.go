package app

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/slot"
)

// status asks for the status, which has an answer whatever the exit code.
func (w *world) status(args string) (statusReport, result) {
	w.t.Helper()
	got := relay(w.t, w.env, "status --json "+args)
	var report statusReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		w.t.Fatalf("status %s: %v: %+v", args, err, got)
	}
	if strings.Contains(got.stdout+got.stderr, "panic") || report.Lag.Bytes != nil && *report.Lag.Bytes < 0 {
		w.t.Errorf("status %s: %+v", args, got)
	}
	return report, got
}

func (r *statusReport) has(code string) bool {
	return slices.ContainsFunc(r.Reasons, func(x reason) bool { return x.Code == code })
}

func (w *world) js() jetstream.JetStream {
	w.t.Helper()
	nc, err := nats.Connect(sandbox.JetStream(w.t).URL())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	return js
}

// The leader's own figures are taken where it can be asked, and no other relay's.
func TestStatusAsksTheLeader(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t)
	_, address := w.startRelay()
	_, elsewhere := other.startRelay()
	var r statusReport
	var got result
	sandbox.WaitFor(t, 20*time.Second, "the leader publishes", func() (bool, error) {
		r, got = w.status("--max-lag-seconds 5 --relay " + address)
		return r.Leader != nil && r.Leader.URL != nil && *r.Leader.State == "publishing" && r.Lag.Seconds != nil, errors.New(got.stdout)
	})
	if got.code != exitOK || *r.Leader.URL != address || *r.Lag.Seconds != 0 || *r.Pending.Events != 0 || r.LastFailure != nil {
		t.Errorf("%+v", got)
	}
	if text := relay(t, w.env, "status --relay "+address); !strings.Contains(text.stdout, ", publishing  (pid ") {
		t.Errorf("%+v", text)
	}
	bystander := httptest.NewServer(http.NotFoundHandler())
	defer bystander.Close()
	for _, test := range []struct{ address, code string }{
		{elsewhere, codeRelayNotLeader}, {"http://127.0.0.1:1", codeRelayUnreachable}, {bystander.URL, codeRelayUnreachable},
	} {
		r, got := w.status("--relay " + test.address)
		if got.code != exitOK || !r.has(test.code) || r.Leader == nil || r.Leader.URL != nil || r.LastFailure != nil {
			t.Errorf("%s: want %s: %+v", test.address, test.code, got)
		}
	}
	for _, wrong := range []string{"ftp://x", "http://", "http://u:hunter2@[::"} {
		if got := relay(t, w.env, "status --relay "+wrong); got.code != exitUsage || !strings.Contains(got.stderr, "--relay") || strings.Contains(got.stderr, "hunter2") {
			t.Errorf("%s: %+v", wrong, got)
		}
	}
}

// A leader that cannot store says so: what waits, since when, and what failed.
func TestStatusOfAStalledLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, address := w.startRelay("--drain-timeout=100ms")
	w.insert(1)
	js := w.js()
	stream, err := js.Stream(t.Context(), w.stream)
	if err != nil {
		t.Fatal(err)
	}
	b.waitFor(t, b.log, "to=publishing")
	sandbox.WaitFor(t, 20*time.Second, "the first event is stored", func() (bool, error) {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs == 1, err
	})
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgs = 1
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	w.insert(3)
	var r statusReport
	var got result
	sandbox.WaitFor(t, 30*time.Second, "the leader is not ready", func() (bool, error) {
		r, got = w.status("--max-lag-seconds 1 --relay " + address)
		return r.has(codeLeaderNotReady), errors.New(got.stdout)
	})
	if got.code != exitVerdict || r.Verdict != verdictBroken || !r.has(codeLagSecondsExceeded) || r.Leader.WaitingFor == nil || r.Leader.WaitingSince == nil ||
		*r.Pending.Events != 3 || *r.Pending.Source != pendingLeader || *r.Pending.OldestAgeSeconds < 1 || *r.Lag.Seconds < 1 ||
		r.LastFailure == nil || valueOr(r.LastFailure.Code, "") != "refused" {
		t.Errorf("%s", got.stdout)
	}
	text := relay(t, w.env, "status --relay "+address)
	for _, want := range []string{"BROKEN", "3 events", "last failure", "FAIL", "the leader is not ready"} {
		if !strings.Contains(text.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, text.stdout)
		}
	}
}

// Another relay than the leader is not believed.
func TestHolds(t *testing.T) {
	t.Parallel()
	pid, other := int32(7), int32(8)
	since, later := time.Now(), time.Now().Add(time.Second)
	held := &slot.Slot{Name: "s", ActivePID: &pid, Holder: &slot.Holder{PID: pid, Since: &since}}
	hidden := &slot.Slot{Name: "s", ActivePID: &pid}
	says := func(state, name string, pid int32, since *time.Time) *selfStatus {
		return &selfStatus{self: self{State: state}, Slot: name, Holder: &holder{PID: pid, Since: since}}
	}
	for name, test := range map[string]struct {
		says           *selfStatus
		held           *slot.Slot
		byPort, byFlag bool
	}{
		"the leader":          {says("publishing", "s", pid, &since), held, true, true},
		"a resuming leader":   {says("resuming", "s", pid, &since), held, true, true},
		"a standby":           {says("standby", "s", pid, &since), held, false, false},
		"of another slot":     {says("publishing", "t", pid, &since), held, false, false},
		"of another server":   {says("publishing", "s", pid, &later), held, false, false},
		"of another session":  {says("publishing", "s", other, &since), held, false, false},
		"an older relay":      {&selfStatus{self: self{State: "publishing"}}, held, false, false},
		"seen with no rights": {says("publishing", "s", pid, &since), hidden, false, true},
		"nobody holds it":     {says("publishing", "s", pid, &since), &slot.Slot{Name: "s"}, false, false},
	} {
		if got := (relayAddress{}).holds(test.says, test.held); got != test.byPort {
			t.Errorf("%s at the local port: %v", name, got)
		}
		if got := (relayAddress{given: true}).holds(test.says, test.held); got != test.byFlag {
			t.Errorf("%s at --relay: %v", name, got)
		}
	}
}

// Status asks each server in few round trips.
func TestStatusRoundTrips(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.relayed(3)
	w.insert(3)
	w.exec(`CREATE INDEX ON outbox (created_at)`)
	database, err := url.Parse(w.conn.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	answered, trips, questions := true, 0, 0
	pg, broker := proxy(t, database.Host), proxy(t, strings.TrimPrefix(sandbox.JetStream(t).URL(), "nats://"))
	pg.OnPg(func(m sandbox.PgMessage) sandbox.Action {
		mu.Lock()
		defer mu.Unlock()
		if m.ToServer && answered && m.Type != 'X' { // nobody waits for the end
			trips++
		}
		answered = !m.ToServer
		return sandbox.Forward
	})
	broker.OnNATS(func(m sandbox.NATSMessage) sandbox.Action {
		mu.Lock()
		defer mu.Unlock()
		if m.ToServer && slices.Contains([]string{"CONNECT", "PUB", "HPUB"}, m.Op) {
			questions++
		}
		return sandbox.Forward
	})
	database.Host = pg.Addr()
	w.env = append(w.env, "DATABASE_URL="+database.String(), "NATS_URL=nats://"+broker.Addr())
	r, got := w.status("")
	if r.Pending.Source == nil || *r.Pending.Source != pendingRows {
		t.Errorf("it did not ask for everything: %s", got.stdout)
	}
	mu.Lock()
	defer mu.Unlock()
	if trips < 5 || trips > 10 || questions < 3 || questions > 10 {
		t.Errorf("%d round trips to PostgreSQL, %d to NATS", trips, questions)
	}
	t.Logf("%d round trips to PostgreSQL, %d to NATS", trips, questions)
}

func proxy(t *testing.T, target string) *sandbox.Proxy {
	t.Helper()
	p, err := sandbox.StartProxy(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}
