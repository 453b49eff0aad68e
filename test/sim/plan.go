package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Plan is one schedule: what the two servers and the relays are like, and what happens when. It follows from a seed alone.
type Plan struct {
	Seed uint64 `json:"seed"`
	Set  Set    `json:"set"`
	Step []Step `json:"steps"`
}

// Set is what does not change in a schedule.
type Set struct {
	Relays       int           `json:"relays"`
	Window       int           `json:"window"`
	WindowBytes  int           `json:"window_bytes"`
	AckTimeout   time.Duration `json:"ack_timeout"`
	Session      time.Duration `json:"session_timeout"`
	Yield        time.Duration `json:"yield_after"`
	ConfirmDelay time.Duration `json:"confirm_delay"`

	Latency    time.Duration `json:"latency"` // at most, one way
	Buffer     int           `json:"buffer"`  // of a connection, bytes
	Major      int           `json:"major"`
	Chatter    float64       `json:"chatter"`
	Ahead      bool          `json:"ahead"`
	Pace       time.Duration `json:"pace"`
	Release    time.Duration `json:"release"`
	Replicated bool          `json:"replicated"`
	AckDelay   time.Duration `json:"ack_delay"`
	Quorum     time.Duration `json:"quorum"`
	DupWindow  time.Duration `json:"duplicate_window"`
}

// Step is one thing that happens.
type Step struct {
	At   time.Duration `json:"at"`
	Kind string        `json:"kind"`
	Who  int           `json:"who,omitempty"` // a relay
	N    int           `json:"n,omitempty"`
	For  time.Duration `json:"for,omitempty"`
	Lose bool          `json:"lose,omitempty"`
}

func (s Step) String() string {
	text := s.Kind
	if s.N > 0 {
		text += fmt.Sprintf(" n=%d", s.N)
	}
	if s.For > 0 {
		text += fmt.Sprintf(" for=%s", s.For)
	}
	if s.Lose {
		text += " lose"
	}
	return text + fmt.Sprintf(" who=%d", s.Who)
}

// Sizes of a schedule.
const (
	eventsPerSchedule = 100
	faultsPerSchedule = 10
)

// draw makes the plan of a seed.
func draw(seed uint64) Plan {
	d := drawer{rand.New(rand.NewPCG(seed, 0x72656c6179))} //nolint:gosec // repeatable on purpose
	p := Plan{Seed: seed, Set: d.set()}
	span := d.span()
	for events := 0; events < eventsPerSchedule; {
		s := Step{At: d.within(span), Kind: "commit", N: d.rows()}
		if d.IntN(8) == 0 {
			s.Kind = pick(d, "neighbours", "checkpoint", "empty")
		} else {
			events += s.N
		}
		p.Step = append(p.Step, s)
	}
	special := ""
	if d.IntN(6) == 0 { // what changes the promise, alone in its schedule
		special = pick(d, "poison", "poison", "foreign-id", "foreign", "slot-lost", "slot-missing", "column-dropped", "power-cut", "failover", "recreate", "power-cut", "failover")
		for range 1 + d.IntN(2) {
			p.Step = append(p.Step, d.fault(special, p.Set, d.within(span)))
		}
	}
	if d.IntN(12) == 0 { // PostgreSQL stops while nothing can be stored
		at := d.within(span)
		p.Step = append(p.Step, d.fault("nats-outage", p.Set, at), d.fault("postgres-stop", p.Set, at+d.pause()))
	}
	kinds := d.mood()
	for range faultsPerSchedule {
		p.Step = append(p.Step, d.fault(kinds[d.IntN(len(kinds))], p.Set, d.within(span)))
	}
	sortSteps(p.Step)
	return p
}

type drawer struct{ *rand.Rand }

func pick[T any](d drawer, from ...T) T { return from[d.IntN(len(from))] }

func (d drawer) set() Set {
	s := Set{
		Relays: pick(d, 1, 1, 2, 2, 3), Window: pick(d, 1, 2, 4, 16, 64, 64, 256), WindowBytes: pick(d, 1, 2000, 1<<20, 1<<20),
		AckTimeout: pick(d, time.Second, 2*time.Second, 10*time.Second), Session: pick(d, time.Second, 2*time.Second, 10*time.Second),
		Yield:   pick(d, 5*time.Second, time.Minute, -1),
		Latency: pick(d, 0, 50*time.Microsecond, time.Millisecond, 10*time.Millisecond), Buffer: pick(d, 512, 4<<10, 64<<10, 64<<10),
		Major: pick(d, 14, 15, 18), Chatter: pick(d, 0, 0.05, 0.3), Ahead: d.IntN(2) == 0, Pace: pick(d, 0, 0, time.Millisecond, 20*time.Millisecond),
		Release: pick(d, 0, time.Millisecond, 300*time.Millisecond), Replicated: d.IntN(2) == 0,
		AckDelay: pick(d, 0, time.Millisecond, 20*time.Millisecond), Quorum: pick(d, time.Millisecond, 10*time.Millisecond),
		DupWindow: pick(d, 100*time.Millisecond, 2*time.Minute),
	}
	if d.IntN(4) == 0 {
		s.ConfirmDelay = pick(d, 200*time.Millisecond, 2*time.Second)
	}
	return s
}

// span is how long a schedule takes: from everything at once to hours.
func (d drawer) span() time.Duration {
	if d.IntN(100) == 0 {
		return 2 * time.Hour
	}
	return pick(d, 50*time.Millisecond, time.Second, 5*time.Second, 20*time.Second, time.Minute)
}

// within draws a time; half of them come in bursts.
func (d drawer) within(span time.Duration) time.Duration {
	at := time.Duration(d.Int64N(int64(span)))
	if d.IntN(2) == 0 {
		burst := span / 5
		at = at/burst*burst + time.Duration(d.Int64N(int64(min(burst, 30*time.Millisecond))))
	}
	return at
}

func (d drawer) rows() int { return pick(d, 1, 1, 1, 2, 3, 5, 17) }

// pause draws how long something lasts: mostly short, sometimes longer than every timeout.
func (d drawer) pause() time.Duration {
	most := pick(d, time.Millisecond, 30*time.Millisecond, 300*time.Millisecond, 3*time.Second, 30*time.Second)
	return time.Duration(1 + d.Int64N(int64(most)))
}

// mood draws the kinds of faults of a schedule: many kinds, or a few again and again.
func (d drawer) mood() []string {
	if d.IntN(2) == 0 {
		return everyday
	}
	few := make([]string, 0, 3)
	for range 3 {
		few = append(few, everyday[d.IntN(len(everyday))])
	}
	return few
}

// everyday are the faults that change nothing about the promise.
var everyday = []string{
	"kill", "kill", "kill-at-store", "kill-at-store", "kill-at-confirm", "stop", "freeze", "freeze-at-store",
	"cut-postgres", "cut-nats", "cut-nats-at-store", "cut-nats-at-store", "hold-nats", "hold-postgres", "partition-nats", "partition-relay",
	"postgres-crash", "postgres-crash-at-confirm", "postgres-stop", "postgres-session", "postgres-freeze", "occupy", "checkpoint",
	"drop-acks", "drop-acks", "swallow", "refuse", "refuse", "full", "late", "mute", "leaderless", "leaderless", "nats-down", "nats-freeze",
	"no-consumers", "stall", "nats-outage",
}

func (d drawer) fault(kind string, set Set, at time.Duration) Step {
	if kind == "nats-outage" { // longer than anybody should wait for it
		return Step{At: at, Kind: kind, For: time.Minute + d.pause()}
	}
	return Step{At: at, Kind: kind, Who: d.IntN(set.Relays), N: 1 + d.IntN(pick(d, 1, 3, 10)), For: d.pause(), Lose: d.IntN(2) == 0}
}
