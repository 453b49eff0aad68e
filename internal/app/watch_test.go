package app

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/pump"
)

func TestC23_Ready(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, test := range []struct {
		name   string
		status pump.Status
		says   string // "" for ready
	}{
		{"idle for an hour", pump.Status{State: pump.StatePublishing, Since: ago(time.Hour)}, ""},
		{"a healthy standby", pump.Status{State: pump.StateStandby, Since: ago(time.Hour)}, ""},
		{"busy", pump.Status{State: pump.StatePublishing, Since: ago(time.Hour), Events: 9, Oldest: ago(time.Minute), LastStored: ago(time.Second)}, ""},
		{"just interrupted", pump.Status{State: pump.StateResuming, Since: ago(time.Second), WaitingFor: "nats", WaitingSince: ago(time.Second)}, ""},
		{"events after a long rest", pump.Status{State: pump.StatePublishing, Since: ago(time.Hour), Events: 1, Oldest: ago(time.Second), LastStored: ago(time.Hour)}, ""},
		{"the broker is away", pump.Status{State: pump.StateResuming, Since: ago(time.Second), WaitingFor: "nats: no servers", WaitingSince: ago(7 * time.Second)}, "waiting for 7s: nats: no servers"},
		{"PostgreSQL is away", pump.Status{State: pump.StateStandby, Since: ago(time.Hour), WaitingFor: "refused", WaitingSince: ago(time.Minute)}, "refused"},
		{"stalled", pump.Status{State: pump.StatePublishing, Since: ago(time.Hour), Events: 3, Oldest: ago(20 * time.Second), LastStored: ago(time.Hour)}, "3 events wait, and nothing was stored for 20s"},
		{"a long resume", pump.Status{State: pump.StateResuming, Since: ago(6 * time.Second)}, "reading the stream back"},
		{"draining", pump.Status{State: pump.StateDraining, Since: now}, "stopping"},
	} {
		if got := unready(test.status, now); (got == "") != (test.says == "") || !strings.Contains(got, test.says) {
			t.Errorf("%s: %q, want %q", test.name, got, test.says)
		}
	}
	if hung(ago(29*time.Second), now) != "" || !strings.Contains(hung(ago(31*time.Second), now), "31s") {
		t.Error("a loop that does not turn")
	}
}

// C51: the age comes from the commit, is never below 0, and is 0 when nothing waits.
func TestC51_Lag(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, test := range map[string]struct {
		status pump.Status
		lag    time.Duration
		known  bool
	}{
		"standby":             {pump.Status{State: pump.StateStandby, CaughtUp: true}, 0, false},
		"nothing heard yet":   {pump.Status{State: pump.StatePublishing}, 0, false},
		"idle":                {pump.Status{State: pump.StatePublishing, CaughtUp: true}, 0, true},
		"behind":              {pump.Status{State: pump.StatePublishing, Oldest: now.Add(-time.Minute)}, time.Minute, true},
		"a clock that is off": {pump.Status{State: pump.StatePublishing, Oldest: now.Add(time.Hour)}, 0, true},
	} {
		if lag, known := test.status.Lag(now); lag != test.lag || known != test.known {
			t.Errorf("%s: %v, %v", name, lag, known)
		}
	}
}

func TestMetricsLint(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.of(func() pump.Status { return pump.Status{} })
	m.observe(time.Millisecond)
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// A relay answers about itself on real servers, from the first moment to the last.
func TestRunListens(t *testing.T) {
	t.Parallel()
	stream := strings.ToUpper(sandbox.Name(t))
	env := []string{
		"DATABASE_URL=" + sandbox.Database(t), "NATS_URL=" + sandbox.JetStream(t).URL(), "RELAY_SLOT=" + sandbox.Name(t),
		"RELAY_STREAM=" + stream, "RELAY_SUBJECT=" + strings.ToLower(stream) + ".{topic}",
	}
	for _, args := range []string{"outbox create", "stream create", "slot create"} {
		if got := relay(t, env, args); got.code != exitOK {
			t.Fatalf("%s: %+v", args, got)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	logs, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, []string{"relay", "run", "--listen=127.0.0.1:0"}, io.Discard, w, env)
		w.Close()
	}()
	url := make(chan string, 1)
	go func() {
		found := regexp.MustCompile(`url=(http://\S+)`)
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			if m := found.FindStringSubmatch(lines.Text()); m != nil {
				url <- m[1]
			}
		}
	}()
	var base string
	select {
	case base = <-url:
	case <-time.After(20 * time.Second):
		t.Fatal("the relay does not say where it listens")
	}
	get := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	var s self
	sandbox.WaitFor(t, 20*time.Second, "the relay publishes and has caught up", func() (bool, error) {
		_, body := get("/status")
		s = self{}
		err := json.Unmarshal([]byte(body), &s)
		return s.State == string(pump.StatePublishing) && s.LagSeconds != nil && *s.LagSeconds == 0 && s.ConfirmedLSN != nil, err
	})
	if !s.Ready || s.Reason != nil || s.WaitingFor != nil {
		t.Errorf("%+v", s)
	}
	for path, want := range map[string]string{
		"/livez": "ok", "/readyz": "ok", "/metrics": "\nrelay_leader 1\n",
	} {
		if code, body := get(path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d\n%s", path, code, body)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:forcetypeassert // it is one
	stop()
	if got := <-code; got != exitOK {
		t.Errorf("exit %d", got)
	}
}

func TestListenAddress(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	got := relay(t, nowhere, "run", "--listen", taken.Addr().String())
	if got.code != exitFailed || !strings.Contains(got.stderr, "cannot listen on "+taken.Addr().String()) || !strings.Contains(got.stderr, "--listen") {
		t.Errorf("an address that is taken: %+v", got)
	}
	if got := relay(t, nowhere, "run", "--listen", "nine"); got.code != exitUsage || !strings.Contains(got.stderr, `--listen "nine"`) {
		t.Errorf("no address: %+v", got)
	}
}

// A relay that hangs is not alive; one whose broker is away is, and is not ready.
func TestC23_Probes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := &told{turned: now, status: pump.Status{State: pump.StateResuming, Since: now, WaitingFor: "nats", WaitingSince: now.Add(-time.Minute)}}
	h := handler(w, newMetrics())
	ask := func(path string) int {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return rec.Code
	}
	if live, ready := ask("/livez"), ask("/readyz"); live != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("broker away: live %d, ready %d", live, ready)
	}
	w.turned = now.Add(-time.Hour)
	if live := ask("/livez"); live != http.StatusServiceUnavailable {
		t.Errorf("hung: live %d", live)
	}
}

type told struct {
	status pump.Status
	turned time.Time
}

func (w *told) Status() pump.Status { return w.status }
func (w *told) Turned() time.Time   { return w.turned }
