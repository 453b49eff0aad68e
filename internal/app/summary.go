package app

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/seed-1cfd9858/relay/pump"
)

// summaryEvery is how often a leader says in its log how it goes. A standby says nothing.
const summaryEvery = time.Minute

// summary writes the regular line of a leader.
type summary struct {
	log    *slog.Logger
	status func() pump.Status

	before pump.Status // at the last line, or when this relay was last seen not to lead
	at     time.Time
}

// start begins. The result ends it.
func (s *summary) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.before, s.at = s.status(), time.Now()
	var owner sync.WaitGroup
	owner.Go(func() {
		ticker := time.NewTicker(summaryEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				s.tell(now)
			}
		}
	})
	return func() {
		cancel()
		owner.Wait()
	}
}

// tell writes the line if this relay leads.
func (s *summary) tell(now time.Time) {
	status := s.status()
	if status.Leading() {
		s.log.Info("summary", s.attributes(status, now)...)
	}
	s.before, s.at = status, now
}

// attributes are what happened since the last line and how things stand. What is not known is left out.
func (s *summary) attributes(status pump.Status, now time.Time) []any {
	stored := status.Counts.Published - s.before.Counts.Published
	attrs := []any{
		"state", status.State, "stored", stored, "per_second", round(float64(stored)/now.Sub(s.at).Seconds(), 1), "events_waiting", status.Events,
	}
	add := func(key string, value any) { attrs = append(attrs, key, value) }
	if found := status.Counts.Skipped - s.before.Counts.Skipped; found > 0 {
		add("found_in_stream", found)
	}
	if lag, known := status.Lag(now); known {
		add("lag_seconds", round(lag.Seconds(), 3))
	}
	if status.WaitingFor != "" {
		add("waiting_for", oneLine(status.WaitingFor))
	}
	if status.Confirmed > 0 {
		add("confirmed_lsn", status.Confirmed.String())
	}
	if slot := status.Slot; slot != nil {
		if slot.UnconfirmedBytes != nil {
			add("wal_unconfirmed_bytes", *slot.UnconfirmedBytes)
		}
		if slot.RetainedBytes != nil {
			add("wal_held_bytes", *slot.RetainedBytes)
		}
		if slot.SafeWALBytes != nil {
			add("wal_safe_bytes", *slot.SafeWALBytes)
		}
	}
	return attrs
}

func round(f float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(f*unit) / unit
}
