package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/slot"
)

// Into a pipe goes a line for each look, and with --json a document in each.
func TestStatusWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lines := w.start("status", "--watch", "--interval=200ms")
	documents := w.start("status", "--watch", "--interval=200ms", "--json")
	_, address := w.startRelay()
	w.insert(5)
	w.start("status", "--watch", "--interval=200ms", "--relay", address)
	sandbox.WaitFor(t, 20*time.Second, "some looks", func() (bool, error) {
		return strings.Count(lines.out.String(), "\n") > 3 && strings.Count(documents.out.String(), "\n") > 3 &&
			strings.Contains(lines.out.String(), "  ok "), errors.New(lines.out.String())
	})
	for _, b := range []*background{lines, documents} {
		if code := b.stop(); code != exitOK || b.log.String() != "" {
			t.Errorf("exit %d: %s", code, b.log)
		}
	}
	if first, _, _ := strings.Cut(lines.out.String(), "\n"); !strings.Contains(first, "waiting ") || !strings.Contains(first, "WAL held ") {
		t.Errorf("%q", first)
	}
	decoder := json.NewDecoder(strings.NewReader(documents.out.String()))
	for decoder.More() {
		var r statusReport
		if err := decoder.Decode(&r); err != nil || r.Verdict == "" {
			t.Fatalf("%v: %+v", err, r)
		}
	}
}

// What is seen at each look becomes rates, a history, and how long the slot has.
func TestStatusWatchHistory(t *testing.T) {
	t.Parallel()
	start := time.Now()
	w := &statusWatch{every: time.Second}
	look := func(second int, stored uint64, lag *float64, flushed pglogrepl.LSN, safe int64) walRates {
		s := &slot.State{At: start.Add(time.Duration(second) * time.Second), FlushLSN: &flushed, Slot: &slot.Slot{SafeWALBytes: &safe}}
		rates := w.rates(*s)
		w.remember(&statusReport{Lag: lagReport{Seconds: lag}, Stream: &streamReport{LastSequence: stored}}, s)
		return rates
	}
	if r := look(0, 100, nil, 1000, 5000); r.Written != nil || r.Shrinks != nil {
		t.Errorf("one look is no rate: %+v", r)
	}
	if r := look(2, 300, seconds(time.Second), 3000, 4000); *r.Written != 1000 || *r.Shrinks != 500 {
		t.Errorf("written %v, shrinks %v", *r.Written, *r.Shrinks)
	}
	w.remember(&statusReport{}, nil) // nobody could be asked
	look(4, 200, seconds(0), 3000, 4000)
	rates := w.storedRates()
	if len(rates) != 3 || *rates[0] != 100 || rates[1] != nil || rates[2] != nil {
		t.Errorf("stored a second: %v", rates)
	}
	lags, write := w.lags()
	if len(lags) != 4 || lags[0] != nil || *lags[1] != 1 || write(0.25) != "250 ms" {
		t.Errorf("lags: %v", lags)
	}
	var b bytes.Buffer
	drawSeries(&b, "lag", lags, write, 80)
	if d := cmp.Diff("  lag          0 s         █ ·  most 1.0 s\n", b.String()); d != "" {
		t.Error(d)
	}
	for range 2 * maxLooks {
		look(5, 200, nil, 3000, 4000)
	}
	if len(w.looks) != maxLooks {
		t.Errorf("%d looks are kept", len(w.looks))
	}
}

func TestSparkline(t *testing.T) {
	t.Parallel()
	var values []*float64
	for i := range 9 {
		v := float64(i)
		values = append(values, &v)
	}
	values = append(values, nil)
	if d := cmp.Diff("·▂▃▄▅▆▇██ ", sparkline(values, 8)); d != "" {
		t.Error(d)
	}
	zero := 0.0
	if got := sparkline([]*float64{&zero, &zero}, 0); got != "··" {
		t.Errorf("%q", got)
	}
}

// The screen is never scrolled, and what is too long goes on in the next line.
func TestScreen(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	s := &screen{out: &b, size: func() (int, int, error) { return 0, 0, errors.New("no terminal") }}
	if width, height := s.dimensions(); width != 80 || height != 24 {
		t.Errorf("%d x %d", width, height)
	}
	if err := s.show("one\ntwo and more\n\nlast\n", 8, 4); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("\x1b[Hone\x1b[K\r\ntwo and \x1b[K\r\nmore\x1b[K\r\n\x1b[K\x1b[J", b.String()); d != "" {
		t.Error(d)
	}
}
