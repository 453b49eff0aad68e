package app

import (
	"context"
	"sync"
	"time"

	"github.com/seed-1cfd9858/relay/pump"
)

// A relay remembers its last quarter of an hour: one sample every 5 s, 181 in all, about 30 KB.
const (
	sampleEvery = 5 * time.Second
	historySpan = 15 * time.Minute
	maxSamples  = int(historySpan/sampleEvery) + 1
)

// sample is the relay at one moment. Unknown is null.
type sample struct {
	At          time.Time  `json:"at"`
	State       pump.State `json:"state"`
	Paused      bool       `json:"paused"`            // it waited for something
	Rate        *float64   `json:"events_per_second"` // stored since the sample before
	LagSeconds  *float64   `json:"lag_seconds"`
	Events      *int       `json:"events"`               // read and not stored; null while it does not lead
	LatencyMean *float64   `json:"latency_mean_seconds"` // of the batches of acks since the sample before; null if there was none
	LatencyMax  *float64   `json:"latency_max_seconds"`
	Retained    *int64     `json:"retained_bytes"`
	Safe        *int64     `json:"safe_bytes"`

	stored   uint64
	lookedAt time.Time // when PostgreSQL was asked about the slot
	flushed  *int64    // the end of WAL then
}

// history is what a relay remembers for its page. It is safe for concurrent use.
type history struct {
	mu      sync.Mutex
	samples []sample // oldest first
	latency latencies
}

// latencies adds up what was observed since the last sample.
type latencies struct {
	n        int
	sum, max time.Duration
}

// observe is for pump.Config.Observe.
func (h *history) observe(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latency.n++
	h.latency.sum += d
	h.latency.max = max(h.latency.max, d)
}

// add takes a sample.
func (h *history) add(s pump.Status, now time.Time) {
	next := sample{At: now, State: s.State, Paused: s.WaitingFor != "", stored: s.Counts.Published + s.Counts.Skipped}
	if s.Leading() {
		next.Events = &s.Events
	}
	if lag, known := s.Lag(now); known {
		next.LagSeconds = seconds(lag)
	}
	if s.Slot != nil {
		next.Retained, next.Safe, next.lookedAt = s.Slot.RetainedBytes, s.Slot.SafeWALBytes, s.SlotAt
		if confirmed, behind := s.Slot.ConfirmedFlushLSN, s.Slot.UnconfirmedBytes; confirmed != nil && behind != nil {
			end := int64(*confirmed) + *behind
			next.flushed = &end
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.samples); n > 0 {
		before := h.samples[n-1]
		if gone := now.Sub(before.At).Seconds(); gone > 0 && next.stored >= before.stored {
			rate := float64(next.stored-before.stored) / gone
			next.Rate = &rate
		}
		if n == maxSamples {
			h.samples = append(h.samples[:0], h.samples[1:]...)
		}
	}
	if l := h.latency; l.n > 0 {
		next.LatencyMean, next.LatencyMax = seconds(l.sum/time.Duration(l.n)), seconds(l.max)
		h.latency = latencies{}
	}
	h.samples = append(h.samples, next)
}

func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}

// all returns the samples, oldest first. It is the caller's copy.
func (h *history) all() []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]sample{}, h.samples...)
}

// keep samples a relay until the function that it returns is called.
func (h *history) keep(ctx context.Context, status func() pump.Status) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var owner sync.WaitGroup
	h.add(status(), time.Now())
	owner.Go(func() {
		ticker := time.NewTicker(sampleEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				h.add(status(), now)
			}
		}
	})
	return func() {
		cancel()
		owner.Wait()
	}
}

// walSpan is the time over which the rates of the slot's figures are taken: longer than the saw-tooth of checkpoints on a
// busy server, short enough to follow an outage.
const walSpan = 5 * time.Minute

// walRates are the slot's figures in motion, in bytes a second.
type walRates struct {
	Written *float64 `json:"wal_bytes_per_second"`         // WAL that the server writes; nil while not known
	Shrinks *float64 `json:"safe_bytes_shrink_per_second"` // how fast the slot's room shrinks, negative when it grows; nil without a limit
}

// ratesOf returns the rates between the two looks at the slot that lie furthest apart within walSpan.
func ratesOf(samples []sample) (r walRates) {
	if len(samples) == 0 {
		return r
	}
	last := samples[len(samples)-1]
	for _, first := range samples {
		gone := last.lookedAt.Sub(first.lookedAt)
		if first.lookedAt.IsZero() || gone > walSpan {
			continue
		}
		if gone < time.Second {
			break
		}
		if first.flushed != nil && last.flushed != nil {
			rate := max(0, float64(*last.flushed-*first.flushed)/gone.Seconds())
			r.Written = &rate
		}
		if first.Safe != nil && last.Safe != nil {
			rate := float64(*first.Safe-*last.Safe) / gone.Seconds()
			r.Shrinks = &rate
		}
		break
	}
	return r
}
