package pump

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/publisher"
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
	if state == StateStandby || state == StateStopped {
		next.Events, next.Bytes = 0, 0
	}
	p.status.Store(&next)
}
