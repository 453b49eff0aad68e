package checkpoint

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// sampling is how often a Delay takes a sample: the precision of the delay, and what bounds its memory.
const sampling = 100 * time.Millisecond

// Delay holds an LSN back: what may be confirmed at a time is what could have been confirmed the delay earlier. A broker
// that loses the last moments before a crash then gets them again. The zero value does not delay. It is owned by one
// goroutine; its clock is the caller's and must be monotonic.
type Delay struct {
	by      time.Duration
	samples []sample // oldest first; the last one's LSN may still rise
	out     pglogrepl.LSN
}

type sample struct {
	at  time.Time // when the LSN became the sample's
	lsn pglogrepl.LSN
}

// NewDelay returns a delay by d, or none for 0.
func NewDelay(d time.Duration) *Delay { return &Delay{by: d} }

// Put notes that low may be confirmed now, apart from the delay.
func (d *Delay) Put(low pglogrepl.LSN, now time.Time) {
	if d.by <= 0 {
		d.out = max(d.out, low)
		return
	}
	n := len(d.samples)
	switch {
	case n > 0 && low <= d.samples[n-1].lsn, n == 0 && low <= d.out:
	case n > 1 && now.Sub(d.samples[n-2].at) < sampling:
		d.samples[n-1] = sample{at: now, lsn: low} // its first part waits for less than sampling more, and never less
	default:
		d.samples = append(d.samples, sample{at: now, lsn: low})
	}
}

// Low returns what may be confirmed now.
func (d *Delay) Low(now time.Time) pglogrepl.LSN {
	due := 0
	for due < len(d.samples) && now.Sub(d.samples[due].at) >= d.by {
		d.out = max(d.out, d.samples[due].lsn)
		due++
	}
	d.samples = d.samples[:copy(d.samples, d.samples[due:])]
	return d.out
}

// Next returns when Low rises next if nothing more is put, or the zero time.
func (d *Delay) Next() time.Time {
	if len(d.samples) == 0 {
		return time.Time{}
	}
	return d.samples[0].at.Add(d.by)
}

// Flush ends the delay of everything that was put: a relay that stops in an orderly way does not wait.
func (d *Delay) Flush() {
	for _, s := range d.samples {
		d.out = max(d.out, s.lsn)
	}
	d.samples = d.samples[:0]
}
