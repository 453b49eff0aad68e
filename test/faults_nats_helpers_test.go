package test

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// pause is one line of a relay's log: a try to publish that failed.
type pause struct {
	reason  string
	attempt int
	backoff time.Duration
	since   string // waiting_since
	code    string // "" if the way to an epoch failed
}

var pauseLine = regexp.MustCompile(`level=WARN msg="publishing is paused, trying again" reason=("(?:[^"\\]|\\.)*"|\S+) ` +
	`attempt=(\d+) backoff=(\S+) events_waiting=\d+ waiting_since=(\S+)(?: code=(\w+))?`)

// pauses returns the pauses in a relay's log, in order.
func pauses(t *testing.T, r *harness.Relay) []pause {
	t.Helper()
	var all []pause
	for _, m := range pauseLine.FindAllStringSubmatch(r.Log(), -1) {
		attempt, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		backoff, err := time.ParseDuration(m[3])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pause{reason: strings.Trim(m[1], `"`), attempt: attempt, backoff: backoff, since: m[4], code: m[5]})
	}
	return all
}

// waitPause waits until a relay's log has a pause that fits.
func waitPause(t *testing.T, r *harness.Relay, what string, fits func(pause) bool) {
	t.Helper()
	sandbox.WaitFor(t, harness.Limit, "a pause: "+what, func() (bool, error) {
		if !r.Running() {
			t.Fatalf("the relay has ended:\n%s", r.Log())
		}
		for _, p := range pauses(t, r) {
			if fits(p) {
				return true, nil
			}
		}
		return false, nil
	})
}

// attempt fits a pause that is at least the n-th of its kind without progress.
func attempt(n int, text string) func(pause) bool {
	return func(p pause) bool { return p.attempt >= n && strings.Contains(p.reason, text) }
}

// expectPaced fails the test unless each try was one line, after a pause that doubles from 100 ms to 5 s, give or take a
// fifth, and says since when the relay waits.
func expectPaced(t *testing.T, all []pause) {
	t.Helper()
	const rounding = time.Millisecond
	for i, p := range all {
		nominal := min(100*time.Millisecond<<min(p.attempt-1, 10), 5*time.Second)
		if p.backoff < nominal*8/10-rounding || p.backoff > nominal*12/10+rounding {
			t.Errorf("try %d is followed by a pause of %s, want %s give or take a fifth", p.attempt, p.backoff, nominal)
		}
		if _, err := time.Parse(time.RFC3339, p.since); err != nil {
			t.Errorf("try %d: waiting_since=%s", p.attempt, p.since)
		}
		if i == 0 || p.attempt == 1 {
			continue
		}
		if before := all[i-1]; before.attempt != p.attempt-1 || before.since != p.since {
			t.Errorf("try %d, waiting since %s, follows try %d, waiting since %s", p.attempt, p.since, before.attempt, before.since)
		}
	}
}

// expectCode fails the test unless all pauses have this code and say this. The very first may tell of the event behind the
// one that is refused, which was in flight with it and whose answer came in earlier.
func expectCode(t *testing.T, all []pause, code, text string) {
	t.Helper()
	for i, p := range all {
		if i == 0 && p.code == "refused" && strings.Contains(p.reason, "(10071)") {
			continue
		}
		if p.code != code || !strings.Contains(p.reason, text) {
			t.Errorf("try %d: code %q, reason %q, want %q and %q", p.attempt, p.code, p.reason, code, text)
		}
	}
}

// goesOn waits until everything is confirmed and the relay has said that it goes on, and fails the test unless it is still
// the same process.
func goesOn(t *testing.T, w *harness.World, r *harness.Relay) {
	t.Helper()
	w.WaitConfirmed()
	sandbox.WaitFor(t, harness.Limit, "the relay goes on", func() (bool, error) {
		log := r.Log()
		return strings.LastIndex(log, `msg="publishing goes on"`) > strings.LastIndex(log, `msg="publishing is paused`), nil
	})
	if !r.Running() {
		t.Error("the relay has ended")
	}
}

// expectWaits fails the test unless the relay's tries were paced, and the last one says what it waits for.
func expectWaits(t *testing.T, r *harness.Relay, text string) {
	t.Helper()
	all := pauses(t, r)
	expectPaced(t, all)
	if n := len(all); n == 0 || !strings.Contains(all[n-1].reason, text) {
		t.Errorf("the last of %d tries does not say that the relay waits for %s", n, text)
	}
}

// reconfigure changes the world's stream.
func reconfigure(t *testing.T, w *harness.World, change func(*jetstream.StreamConfig)) {
	t.Helper()
	cfg := w.Stream().CachedInfo().Config
	change(&cfg)
	if _, err := w.JS.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// insertTopic commits one event of a topic.
func insertTopic(w *harness.World, i int, topic string) {
	w.Exec(`INSERT INTO outbox (id, topic, payload) VALUES ($1, $2, '{"n": 1}')`, eventID(i), topic)
}

// verdict is what `relay status --json` said: its verdict, and the text of each reason by its code.
type verdict struct {
	code    int
	word    string
	reasons map[string]string
}

func status(t *testing.T, w *harness.World) verdict {
	t.Helper()
	code, stdout, stderr := w.Do("status", "--json")
	var answer struct {
		Verdict string
		Reasons []struct{ Code, Text string }
	}
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil {
		t.Fatalf("status: exit %d: %v\n%s%s", code, err, stdout, stderr)
	}
	v := verdict{code: code, word: answer.Verdict, reasons: map[string]string{}}
	for _, r := range answer.Reasons {
		v.reasons[r.Code] = r.Text
	}
	return v
}

// expectReason fails the test unless status names the reason and its verdict is this one.
func expectReason(t *testing.T, w *harness.World, word, reason string) {
	t.Helper()
	if v := status(t, w); v.word != word || v.reasons[reason] == "" || (v.code == 0) != (word == "ok") {
		t.Errorf("status: exit %d, %q, reasons %v, want %q and %s", v.code, v.word, v.reasons, word, reason)
	}
}

// expectMessages fails the test unless these are the events, in this order.
func expectMessages(t *testing.T, want []string, messages []harness.Message) {
	t.Helper()
	var got []string
	for _, m := range messages {
		got = append(got, m.ID)
	}
	if err := harness.Difference(want, got); err != nil {
		t.Error(err)
	}
}

// databaseName returns the name of the world's database, as PostgreSQL's log has it.
func databaseName(w *harness.World) string { return w.Conn.Config().Database }

// reachable waits until the test itself reaches its stream again, after a server has come back. A question that was on its
// way when the server went gets no answer.
func reachable(t *testing.T, w *harness.World) {
	t.Helper()
	sandbox.WaitFor(t, harness.Limit, "the stream answers the test", func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := w.JS.Stream(ctx, w.StreamName)
		return err == nil, err
	})
}
