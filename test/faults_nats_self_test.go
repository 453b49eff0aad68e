package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// self is what a relay says of itself.
type self struct {
	State        string    `json:"state"`
	Ready        bool      `json:"ready"`
	WaitingFor   string    `json:"waiting_for"`
	WaitingSince time.Time `json:"waiting_since"`
	Events       int       `json:"events"`
	Bytes        int       `json:"bytes"`
}

var listens = regexp.MustCompile(`msg="health and metrics" url=(\S+)`)

// startListening starts a relay that can be asked, and returns what asks it.
func startListening(t *testing.T, w *harness.World, flags ...string) (p *sandbox.Process, ask func(path string) (code int, text string)) {
	t.Helper()
	p, err := sandbox.StartProcess(t.Context(), sandbox.ProcessConfig{
		Args: w.Args(append([]string{"run", "--listen=127.0.0.1:0"}, flags...)...), Env: []string{"RELAY_TEST_CHILD=relay"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close()
		if t.Failed() {
			t.Log(p.Tail())
		}
	})
	var url []string
	sandbox.WaitFor(t, harness.Limit, "it listens", func() (bool, error) {
		url = listens.FindStringSubmatch(p.Tail())
		return url != nil, nil
	})
	transport := &http.Transport{DisableKeepAlives: true}
	return p, func(path string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url[1]+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
}

// C07, C34: while a relay cannot publish it says of itself what it waits for and since when, and that it lives. When all is
// stored it says that it waits for nothing, also when it learned that from the stream alone, because no ack came through.
func TestC34_SaysWhatItWaitsForAndThatNothingWaits(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms})
	watch := w.Watch()
	defer watch.Stop()
	refuse(t, w.NATSProxy, true)
	began := time.Now()
	_, ask := startListening(t, w, "--session-timeout=2s", "--ack-timeout=1s")
	insert(w, 1, 2)
	says := func(what string, fits func(self) bool) (s self) {
		t.Helper()
		sandbox.WaitFor(t, harness.Limit, what, func() (bool, error) {
			_, text := ask("/status")
			s = self{}
			err := json.Unmarshal([]byte(text), &s)
			if err != nil {
				return false, err
			}
			return fits(s), fmt.Errorf("it says %s", text)
		})
		return s
	}
	s := says("it says what it waits for", func(s self) bool {
		return s.Events == 2 && strings.Contains(s.WaitingFor, "connection refused")
	})
	if s.WaitingSince.Before(began) || s.WaitingSince.After(time.Now()) {
		t.Errorf("it waits since %s, it was started at %s", s.WaitingSince, began)
	}
	if code, text := ask("/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d, %s", code, text)
	}
	w.NATSProxy.OnNATS(func(m sandbox.NATSMessage) sandbox.Action {
		if acknowledges(m) {
			return sandbox.CutConnection
		}
		return sandbox.Forward
	})
	refuse(t, w.NATSProxy, false)
	w.ExpectIDs(eventIDs(1, 2))
	w.WaitConfirmed()
	says("it waits for nothing", func(s self) bool {
		return s.State == "publishing" && s.Ready && s.WaitingFor == "" && s.Events == 0 && s.Bytes == 0
	})
	_, metrics := ask("/metrics")
	for _, line := range []string{"relay_window_events 0\n", "relay_window_bytes 0\n", "relay_events_skipped_total 2\n", "relay_ready 1\n"} {
		if !strings.Contains(metrics, "\n"+line) {
			t.Errorf("the metrics have no line %s", line)
		}
	}
}
