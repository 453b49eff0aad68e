package history

import (
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
)

// Rule names what was broken: a promise or an invariant of the design.
type Rule string

// The rules.
const (
	NotLost      Rule = "promise 1: not lost"
	NotReordered Rule = "promise 2: not reordered"
	NotDoubled   Rule = "promise 3: not doubled"
	NotStuck     Rule = "promise 4: not stuck"
	OnlyStored   Rule = "I1: only what is stored is confirmed"
	NeverBack    Rule = "I2: the confirmed LSN never goes back in a session, write = flush = apply"
	Delayed      Rule = "confirm delay: only what was stored for so long is confirmed"
	SameMessage  Rule = "I6, I7: every writer stores the same message for a row"
	Orderly      Rule = "a relay ends as it should"
)

// Violation is one broken rule.
type Violation struct {
	Rule Rule
	Text string
}

func (v *Violation) Error() string { return fmt.Sprintf("%s: %s", v.Rule, v.Text) }

// Checker follows commits, stored messages and confirmations, and keeps the first violation. It is safe for concurrent
// use. Order of calls is order of events: a commit is noted before it is sent, a message when it is stored.
type Checker struct {
	// Reorders allows order to be broken: a writer that is no relay was there.
	Reorders bool

	mu      sync.Mutex
	log     *Log
	first   *Violation
	commits []*commit // of the present timeline
	events  map[string]*event
	order   int      // of the next event
	stream  []*event // by sequence - 1; nil for messages of others
	tail    int      // the highest order in the stream, -1 if none
	reached int      // commits[:reached] have all been stored at some time
	covered int      // commits[:covered] were confirmed
	system  string
	foreign map[string]bool
	knows   map[string]time.Time // when a relay has last learned where the stream ends
}

type commit struct {
	lsn, end pglogrepl.LSN
	events   []*event
}

type event struct {
	id       string
	order    int
	position string
	gone     bool      // its commit was lost in a failover
	sequence int       // where it is in the stream, 0 if nowhere
	stored   time.Time // when it was stored last; zero if never
	lost     time.Time // when the stream lost it last
	crash    bool      // in a crash
	excused  bool      // lost by the stream after it was confirmed
	poison   bool      // it can never be stored
	released bool      // the operator has said to leave it out
	foreign  bool      // somebody who is no relay has stored its id
}

// NewChecker returns a checker of a slot@system, as messages name their origin.
func NewChecker(log *Log, origin string) *Checker {
	return &Checker{log: log, events: map[string]*event{}, tail: -1, system: origin, knows: map[string]time.Time{}, foreign: map[string]bool{}}
}

// Knows notes that a relay has learned where the stream ends. What the stream has lost before, an earlier ack no longer
// excuses.
func (c *Checker) Knows(relay string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.knows[relay] = time.Now()
}

// Violation returns the first one, or nil.
func (c *Checker) Violation() *Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// Fail notes a violation that somebody else found.
func (c *Checker) Fail(rule Rule, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(rule, format, args...)
}

func (c *Checker) fail(rule Rule, format string, args ...any) {
	if c.first != nil {
		return
	}
	c.first = &Violation{Rule: rule, Text: fmt.Sprintf(format, args...)}
	c.log.Add("CHECK", "violation of %s", c.first.Error())
	c.log.End()
}

// Commit notes a transaction of the outbox, in commit order. ids may be empty.
func (c *Checker) Commit(lsn, end pglogrepl.LSN, ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tx := &commit{lsn: lsn, end: end}
	for i, id := range ids {
		e := &event{id: id, order: c.order, position: fmt.Sprintf("%s %s %d", c.system, lsn, i)}
		c.order++
		if c.foreign[id] {
			e.foreign, e.stored = true, time.Now()
		}
		c.events[id] = e
		tx.events = append(tx.events, e)
	}
	c.commits = append(c.commits, tx)
}

// Poison notes that an event that was committed can never be stored: nothing after it may be stored, and it may not be
// confirmed, until it is released.
func (c *Checker) Poison(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events[id].poison = true
}

// Release notes that the operator has told a relay to leave out the event at a position.
func (c *Checker) Release(position string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.position == position && e.poison {
			e.released, e.stored = true, time.Now()
			c.log.Add("operator", "leaves out %s at %q", e.id, position)
			return
		}
	}
	c.fail(Orderly, "a relay halted at %q, where no poison is", position)
}

// Foreign notes that somebody who is no relay has stored a message with an id: it counts as the event, wherever it is.
func (c *Checker) Foreign(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.foreign[id] = true
	if e := c.events[id]; e != nil {
		e.foreign, e.stored = true, time.Now()
		c.reach()
	}
}

// Forget notes that a failover lost the commits that end after an LSN. Their events may be in the stream or not.
func (c *Checker) Forget(after pglogrepl.LSN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := len(c.commits)
	for keep > 0 && c.commits[keep-1].end > after {
		keep--
		for _, e := range c.commits[keep].events {
			e.gone = true
		}
	}
	c.commits = c.commits[:keep]
	c.reached, c.covered = min(c.reached, keep), min(c.covered, keep)
	c.findTail()
}

// Store notes a message that the stream has stored at its end. position is its Relay-Position, "" if it has none.
func (c *Checker) Store(id, position string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if position == "" {
		c.stream = append(c.stream, nil)
		return
	}
	e := c.events[id]
	if e == nil {
		c.stream = append(c.stream, nil)
		c.fail(SameMessage, "the stream got event %s at %s, which was never committed", id, position)
		return
	}
	c.stream = append(c.stream, e)
	switch {
	case e.poison:
		c.fail(SameMessage, "event %s is stored, which can never be", id)
	case e.position != position:
		c.fail(SameMessage, "event %s has position %q in the stream, its row is at %q", id, position, e.position)
	case e.sequence != 0:
		c.fail(NotDoubled, "event %s is in the stream at sequence %d and again at %d", id, e.sequence, len(c.stream))
	case !e.gone && !c.Reorders && !e.excused && !e.foreign && e.order < c.tail:
		c.fail(NotReordered, "event %s at sequence %d was committed before an event that is in the stream already", id, len(c.stream))
	}
	e.sequence, e.stored, e.excused = len(c.stream), time.Now(), false
	if e.gone {
		return
	}
	c.tail = max(c.tail, e.order)
	c.reach()
	if c.reached < len(c.commits) && !c.Reorders {
		for _, earlier := range c.commits[c.reached].events {
			if earlier.stored.IsZero() && earlier.order < e.order {
				c.fail(NotReordered, "event %s is stored at sequence %d before event %s, which was committed before it and is nowhere yet",
					id, len(c.stream), earlier.id)
			}
		}
	}
}

// reach moves over the commits that have been stored.
func (c *Checker) reach() {
	for ; c.reached < len(c.commits); c.reached++ {
		for _, e := range c.commits[c.reached].events {
			if e.stored.IsZero() {
				return
			}
		}
	}
}

// Truncate notes that the stream has lost everything after a sequence: in a crash, which its clients see, or because somebody
// removed it.
func (c *Checker) Truncate(last int, crash bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, e := range c.stream[last:] {
		if e != nil {
			e.sequence, e.lost, e.crash = 0, now, crash
		}
	}
	c.stream = c.stream[:last]
	for _, tx := range c.commits[:c.covered] {
		for _, e := range tx.events {
			e.excused = e.excused || e.sequence == 0
		}
	}
	c.findTail()
}

func (c *Checker) findTail() {
	c.tail = -1
	for _, e := range c.stream {
		if e != nil && !e.gone {
			c.tail = max(c.tail, e.order)
		}
	}
}
