package test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// rows writes an outbox of its test's own making: good and poisoned events, each in a transaction of its own, and follows
// what has to become of them.
type rows struct {
	t    *testing.T
	w    *harness.World
	n    int
	good []string // ids to be stored, so far
	skip []string // positions of the poisoned events that relays have halted at
}

// id returns a new event id.
func (r *rows) id() string {
	r.n++
	return eventID(r.n)
}

// put inserts an event that can be stored.
func (r *rows) put(sql string, args ...any) {
	r.t.Helper()
	id := r.id()
	r.w.Exec(sql, append([]any{id}, args...)...)
	r.good = append(r.good, id)
}

// flags returns the flags of a relay that leaves out all poisoned events so far.
func (r *rows) flags() []string {
	var flags []string
	for _, position := range r.skip {
		flags = append(flags, "--skip-event="+position)
	}
	return flags
}

// halt runs a relay that has to stop at the event of that id: within 10 s, with exit code 4, the reason, the limit, and the
// line to type. What comes before it is stored and confirmed, it and what comes after it is not. The next relay gets that
// line.
func (r *rows) halt(id string, texts ...string) {
	r.t.Helper()
	began := time.Now()
	relay := r.w.Start(append(r.flags(), "--log-level=info")...)
	r.halted(relay, id, texts...)
	if took := time.Since(began); took > 10*time.Second {
		r.t.Errorf("it halted after %s", took)
	}
}

func (r *rows) halted(relay *harness.Relay, id string, texts ...string) {
	t, w := r.t, r.w
	t.Helper()
	exits(t, relay, 4, append(texts, `halted at event id="`+id+`"`, "it can never be stored")...)
	w.ExpectIDs(r.good)
	line := regexp.MustCompile(`relay run --skip-event '([^']+)'`).FindStringSubmatch(relay.Log())
	if line == nil {
		t.Fatalf("no line to type:\n%s", relay.Log())
	}
	_, position, err := outbox.ParsePosition(line[1])
	if err != nil || !strings.Contains(relay.Log(), `position \"`+line[1]+`\"`) && !strings.Contains(relay.Log(), `position "`+line[1]+`"`) {
		t.Errorf("the line to type does not name the position of the event: %v\n%s", err, relay.Log())
	}
	confirmed := w.ConfirmedLSN()
	if confirmed > position.CommitLSN {
		t.Errorf("%s is confirmed, the event at %s is not stored", confirmed, position.CommitLSN)
	}
	if n := len(r.good); n > 0 && confirmed <= committed(t, w, r.good[n-1]) {
		t.Errorf("%s is confirmed, the event before the poisoned one is not", confirmed)
	}
	if n := lines(relay.Log()); n > 40 {
		t.Errorf("%d lines until it stopped:\n%s", n, relay.Log())
	}
	r.skip = append(r.skip, line[1])
}

// rest runs a relay that leaves out all that was halted at, and fails the test unless it stores everything else.
func (r *rows) rest() {
	t, w := r.t, r.w
	t.Helper()
	relay := w.Start(r.flags()...)
	w.ExpectIDs(r.good)
	w.WaitConfirmed()
	stopped(t, relay)
	w.ExpectIDs(r.good)
	if n := len(r.skip); n > 0 && lines(relay.Log(), "level=ERROR", "event skipped as told") == 0 {
		t.Error("no error tells that an event was skipped")
	}
}
