package history

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// Update is a standby status update.
type Update struct {
	Write, Flush, Apply pglogrepl.LSN
}

// Session follows the confirmations of one replication session.
type Session struct {
	checker *Checker
	name    string // of the relay
	last    pglogrepl.LSN
}

// Session begins to follow a session of the relay of that name.
func (c *Checker) Session(name string) *Session { return &Session{checker: c, name: name} }

// Confirmed notes a status update when PostgreSQL takes it. end is the end of its WAL. delay is for how long everything that
// it covers must have been stored.
func (s *Session) Confirmed(u Update, end pglogrepl.LSN, delay time.Duration) {
	c := s.checker
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case u.Write != u.Flush || u.Flush != u.Apply:
		c.fail(NeverBack, "%s: write %s, flush %s, apply %s differ", s.name, u.Write, u.Flush, u.Apply)
	case u.Flush < s.last:
		c.fail(NeverBack, "%s: %s after %s", s.name, u.Flush, s.last)
	case u.Flush > end:
		c.fail(OnlyStored, "%s: %s is beyond the end of the WAL, %s", s.name, u.Flush, end)
	}
	s.last = u.Flush
	now := time.Now()
	for ; c.covered < len(c.commits) && c.commits[c.covered].lsn < u.Flush; c.covered++ {
		for _, e := range c.commits[c.covered].events {
			s.judge(e, u.Flush, now, delay)
		}
	}
	if c.covered < len(c.commits) && c.commits[c.covered].lsn == u.Flush {
		c.fail(OnlyStored, "%s is where a commit begins, not where it ends: the transaction would come again", u.Flush)
	}
}

// notice is how long it takes at most until a relay has seen that its connection has ended.
const notice = 50 * time.Millisecond

// judge looks at one event that is confirmed for the first time.
func (s *Session) judge(e *event, at pglogrepl.LSN, now time.Time, delay time.Duration) {
	c := s.checker
	switch {
	case e.released, e.foreign:
	case e.stored.IsZero():
		c.fail(OnlyStored, "%s is confirmed, event %s at %q was never stored", at, e.id, e.position)
	case e.sequence == 0 && c.knows[s.name].After(e.lost):
		c.fail(OnlyStored, "%s is confirmed, event %s was lost by the stream %s ago, and the relay knew where the stream ends", at, e.id, now.Sub(e.lost))
	case e.sequence == 0 && e.crash && e.lost.Sub(e.stored) < delay && now.Sub(e.lost) > notice:
		c.fail(Delayed, "%s is confirmed, event %s was lost by the stream %s after it was stored, wanted %s", at, e.id, e.lost.Sub(e.stored), delay)
	case e.sequence == 0:
		e.excused = true
	case now.Sub(e.stored) < delay:
		c.fail(Delayed, "%s is confirmed %s after event %s was stored, wanted %s", at, now.Sub(e.stored), e.id, delay)
	}
}

// Settled reports whether everything that was committed is stored and confirmed, and else what is missing.
func (c *Checker) Settled(confirmed pglogrepl.LSN) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last pglogrepl.LSN
	for _, tx := range c.commits {
		for _, e := range tx.events {
			if !e.settled() {
				return "event " + e.id + " at " + e.position + " is not in the stream", false
			}
			last = tx.end
		}
	}
	if confirmed < last {
		return "confirmed is " + confirmed.String() + ", the last transaction ends at " + last.String(), false
	}
	return "", true
}

// Loss fails if events are missing that nothing excuses, and says whether they are already confirmed: then they are lost.
func (c *Checker) Loss(confirmed pglogrepl.LSN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tx := range c.commits {
		for _, e := range tx.events {
			if !e.settled() && tx.lsn < confirmed {
				c.fail(NotLost, "event %s at %q is not in the stream, and confirmed is %s", e.id, e.position, confirmed)
			}
		}
	}
}

// settled reports whether nothing more is to be done for an event.
func (e *event) settled() bool { return e.sequence != 0 || e.excused || e.released || e.foreign }

// Stored returns how many events are in the stream.
func (c *Checker) Stored() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, e := range c.stream {
		if e != nil {
			n++
		}
	}
	return n
}
