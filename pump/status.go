package pump

import (
	"maps"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/slot"
)

// State is a state of the relay, as drawn in the package comment.
type State string

// The states.
const (
	StateStandby    State = "standby"
	StateResuming   State = "resuming"
	StatePublishing State = "publishing"
	StateDraining   State = "draining"
	StateStopped    State = "stopped"
)

// Status is what a relay knows of itself at one moment.
type Status struct {
	State        State
	Since        time.Time // when the state began
	WaitingFor   string    // what it cannot go on without, "" if nothing
	WaitingSince time.Time
	Events       int // read and not stored
	Bytes        int // of them
	Confirmed    pglogrepl.LSN
	Counts       publisher.Counts

	Oldest     time.Time // when the oldest event that is read and not stored was committed, by PostgreSQL's clock; zero if none waits
	CaughtUp   bool      // in this session the server has said that it had nothing more to send
	LastStored time.Time // when an event was last stored in this process, zero if none was
	Sessions   uint64    // that this process has led
	Failures   Failures  // why epochs ended
	Regressed  uint64    // times that the broker lost what it had acked
	Slot       *slot.Slot
	SlotAt     time.Time // when Slot was looked at; zero before the first look
}

// Failures counts how epochs ended. It is never changed: a new one takes its place.
type Failures map[publisher.Reason]uint64

// with returns the counts with one more.
func (f Failures) with(r publisher.Reason) Failures {
	next := maps.Clone(f)
	if next == nil {
		next = Failures{}
	}
	next[r]++
	return next
}

// Leading reports whether the relay holds the slot.
func (s *Status) Leading() bool {
	return s.State == StateResuming || s.State == StatePublishing || s.State == StateDraining
}

// Lag returns how far the stream is behind PostgreSQL at a moment: the age of the oldest event that is read and not
// stored, 0 when nothing waits. It is false while that is not known: nobody leads here, or the server has not said yet that
// it had nothing more to send. Clocks of two machines are compared, so it is never below 0.
func (s *Status) Lag(now time.Time) (time.Duration, bool) {
	switch {
	case !s.Leading():
		return 0, false
	case !s.Oldest.IsZero():
		return max(0, now.Sub(s.Oldest)), true
	}
	return 0, s.CaughtUp
}

// Turned returns when the relay's loop last went round. A relay that has not turned for half a minute hangs: all its waits
// are shorter.
func (p *Pump) Turned() time.Time { return time.Unix(0, p.turned.Load()) }

// turn notes that the loop goes round.
func (p *Pump) turn(now time.Time) { p.turned.Store(now.UnixNano()) }

// note changes the status. Only the goroutine of Run does.
func (p *Pump) note(change func(*Status)) {
	next := *p.status.Load()
	change(&next)
	p.status.Store(&next)
}

// Status returns what the relay knew of itself a moment ago. It is safe for concurrent use.
func (p *Pump) Status() Status { return *p.status.Load() }

// setState is the one place where the state changes.
func (p *Pump) setState(state State, waitingFor string) {
	old := p.status.Load()
	next := *old
	now := time.Now()
	if state != old.State {
		next.State, next.Since = state, now
		log := p.log.Info
		if waitingFor != "" { // a try; the pause itself is logged, and its end
			log = p.log.Debug
		}
		log("state", "from", old.State, "to", state, "after", now.Sub(old.Since).Round(time.Millisecond))
	}
	switch {
	case waitingFor == "":
		next.WaitingSince = time.Time{}
	case old.WaitingFor == "":
		next.WaitingSince = now
	}
	next.WaitingFor = waitingFor
	if !next.Leading() {
		next.Events, next.Bytes, next.Oldest, next.CaughtUp = 0, 0, time.Time{}, false
	}
	p.status.Store(&next)
}
