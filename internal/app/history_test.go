package app

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/pump"
	"github.com/seed-1cfd9858/relay/slot"
)

// A day of samples takes no more room than a quarter of an hour.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, stored := &history{}, uint64(0)
		stop := h.keep(t.Context(), func() pump.Status {
			stored += 50
			return pump.Status{State: pump.StatePublishing, Counts: publisher.Counts{Published: stored}}
		})
		time.Sleep(24*time.Hour + time.Second) //nolint:forbidigo // a bubble's clock
		stop()
		all := h.all()
		if len(all) != maxSamples || cap(h.samples) > 2*maxSamples {
			t.Fatalf("%d samples, room for %d", len(all), cap(h.samples))
		}
		for i, s := range all {
			if s.Rate == nil || *s.Rate != 10 {
				t.Fatalf("sample %d: rate %v, want 10/s", i, s.Rate)
			}
		}
		if gone := all[len(all)-1].At.Sub(all[0].At); gone != historySpan {
			t.Errorf("they go back %v", gone)
		}
	})
}

// What is not known is nil, never 0.
func TestHistoryKnows(t *testing.T) {
	t.Parallel()
	h, now := &history{}, time.Now()
	leading := pump.Status{State: pump.StatePublishing, CaughtUp: true, Counts: publisher.Counts{Published: 100, Skipped: 5}}
	h.add(pump.Status{State: pump.StateStandby}, now)
	h.observe(2 * time.Millisecond)
	h.observe(4 * time.Millisecond)
	h.add(leading, now.Add(5*time.Second))
	h.add(pump.Status{State: pump.StatePublishing}, now.Add(10*time.Second)) // counters never fall; if they did, no rate
	all := h.all()
	if s := all[0]; s.Rate != nil || s.LagSeconds != nil || s.LatencyMean != nil || s.Events != nil || s.Retained != nil || s.Safe != nil {
		t.Errorf("a standby's first: %+v", s)
	}
	if s := all[1]; *s.Rate != 21 || *s.LagSeconds != 0 || *s.LatencyMean != 0.003 || *s.LatencyMax != 0.004 || *s.Events != 0 {
		t.Errorf("a leader's: %+v", s)
	}
	if s := all[2]; s.Rate != nil || s.LagSeconds != nil || s.LatencyMean != nil {
		t.Errorf("the last: %+v", s)
	}
}

func TestWALRates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	looked := func(ago time.Duration, end, safe int64) sample {
		return sample{lookedAt: now.Add(-ago), flushed: &end, Safe: &safe}
	}
	for name, test := range map[string]struct {
		samples          []sample
		written, shrinks float64 // -1 for not known
	}{
		"none":                  {nil, -1, -1},
		"one look":              {[]sample{looked(0, 5, 5)}, -1, -1},
		"the same look twice":   {[]sample{looked(0, 5, 5), looked(0, 5, 5)}, -1, -1},
		"two looks":             {[]sample{looked(10*time.Second, 0, 1000), looked(0, 500, 800)}, 50, 20},
		"older ones are past":   {[]sample{looked(time.Hour, 0, 1<<40), looked(10*time.Second, 0, 1000), looked(0, 500, 1000)}, 50, 0},
		"never looked at first": {[]sample{{}, looked(10*time.Second, 0, 1000), looked(0, 100, 1100)}, 10, -10},
		"another server":        {[]sample{looked(10*time.Second, 500, 1000), looked(0, 0, 1000)}, 0, 0},
	} {
		got := ratesOf(test.samples)
		if valueOr(got.Written, -1) != test.written || (got.Shrinks == nil) != (test.written == -1) || (got.Shrinks != nil && *got.Shrinks != test.shrinks) {
			t.Errorf("%s: %v, %v", name, valueOr(got.Written, -1), valueOr(got.Shrinks, -1))
		}
	}
}

func TestSlotDanger(t *testing.T) {
	t.Parallel()
	const gib = int64(1 << 30)
	of := func(status string, retained, safe int64) *slot.Slot {
		confirmed := pglogrepl.LSN(1)
		return &slot.Slot{WALStatus: status, RetainedBytes: &retained, SafeWALBytes: &safe, ConfirmedFlushLSN: &confirmed}
	}
	unlimited := of("extended", 900*gib, 0)
	unlimited.SafeWALBytes = nil
	rates := func(written, shrinks float64) walRates { return walRates{&written, &shrinks} }
	for name, test := range map[string]struct {
		slot  *slot.Slot
		rates walRates
		level level
		says  string
	}{
		"not looked at":           {nil, walRates{}, levelRest, "not looked at"},
		"fresh":                   {of("reserved", 0, 2*gib), walRates{}, levelOK, ""},
		"busy and healthy":        {of("reserved", gib/10, 2*gib), rates(1e9, 0), levelOK, ""},
		"without a limit":         {unlimited, rates(1e9, 0), levelOK, ""},
		"most is used":            {of("extended", 8*gib, 2*gib), rates(0, 0), levelWarn, "most of the WAL"},
		"nearly all is used":      {of("extended", 19*gib, gib), rates(0, -5), levelBad, "nearly all"},
		"shrinks, hours are left": {of("reserved", gib, 8*gib), rates(1e6, 1e6), levelWarn, "2 h 23 m"},
		"shrinks, minutes left":   {of("reserved", gib, 2*gib), rates(1e6, 1e6), levelBad, "35 m"},
		"at the next checkpoint":  {of("unreserved", 3*gib, -1), rates(1, 1), levelBad, "next checkpoint"},
		"lost":                    {of("lost", 0, 0), walRates{}, levelBad, "is lost"},
	} {
		got := judgeSlot(test.slot, test.rates)
		if got.Level != test.level || !strings.Contains(got.Text, test.says) || (test.says == "") != (got.Text == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The page shows what the log told, without a limit on what the log may tell.
func TestFailures(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	f := &failures{}
	log := f.watch(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelError}))).With("slot", "s").WithGroup("g")
	log.Info("calm")
	for i := range 1000 {
		log.Warn("paused", "reason", fmt.Errorf("first\nsecond %d", i), "code", "refused", "advice", "look")
	}
	log.Error("broken", "err", errors.New("e"))
	for i := range 20 {
		log.Warn("set-up", "code", fmt.Sprint(i), "problem", "p", "fix", "relay slot create")
	}
	log.Warn("paused", "reason", "again", "code", "refused")
	all := f.list()
	if len(all) != maxFailures {
		t.Fatalf("%d", len(all))
	}
	if all[0].Message != "paused" || all[1].Message != "set-up" || *all[1].Advice != "relay slot create" || *all[1].Reason != "p" || all[1].Level != "warn" {
		t.Errorf("%+v", all[:2])
	}
	if got := b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "broken") || !strings.Contains(got, "slot=s") {
		t.Errorf("the log itself: %s", got)
	}
	f = &failures{}
	log = f.watch(slog.New(slog.DiscardHandler))
	for i := range 3 {
		log.Warn("paused", "reason", fmt.Errorf("first\nsecond %d", i), "code", "refused")
	}
	if all := f.list(); len(all) != 1 || all[0].Times != 3 || *all[0].Reason != "first; second 2" || all[0].Last.Before(all[0].First) {
		t.Errorf("%+v", all)
	}
}
