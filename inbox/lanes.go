package inbox

import (
	"slices"
	"sync"
	"time"
)

// lanes holds the messages that are delivered and not done, a lane for each aggregate. Only the front of a lane is handed out,
// and nobody else gets of the lane until that has come back. How many there are is bounded by the consumer's MaxAckPending.
type lanes struct {
	mu      sync.Mutex
	cond    *sync.Cond
	lanes   map[string]*lane
	ready   []*lane // have a message, and nobody has them
	closed  bool    // nothing is handed out now: an event may be missing before those that are here
	shuts   uint64
	stopped bool // nothing is handed out any more
}

// lane is the queue of an aggregate.
type lane struct {
	queue []*delivery
	taken int         // messages at the front that are handed out
	timer *time.Timer // the front waits after a failure; nil: it does not
}

func newLanes() *lanes {
	l := &lanes{lanes: map[string]*lane{}}
	l.cond = sync.NewCond(&l.mu)
	return l
}

// put takes a message in. It reports false if the message is not taken, because everything ends.
func (l *lanes) put(d *delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	at := l.lanes[d.key()]
	if at == nil {
		at = &lane{}
		l.lanes[d.key()] = at
	}
	if slices.ContainsFunc(at.queue, func(q *delivery) bool { return q.StreamSequence == d.StreamSequence }) {
		return true // delivered again although it is here: one ack is enough for both
	}
	place := at.place(d)
	at.queue = slices.Insert(at.queue, place, d)
	switch {
	case len(at.queue) == 1:
		l.offer(at)
	case place == 0 && at.timer != nil && at.timer.Stop(): // it may be what the front waits for
		at.timer = nil
		l.offer(at)
	}
	return true
}

// place returns where a message belongs: in the order of the stream, also when it was delivered again after later ones. Only
// one that has a lower number than a front which waits for it goes before that.
func (at *lane) place(d *delivery) int {
	if at.taken == 0 && len(at.queue) > 0 && d.before(at.queue[0]) {
		return 0
	}
	place := len(at.queue)
	for place > at.taken && at.queue[place-1].StreamSequence > d.StreamSequence {
		place--
	}
	return place
}

// before reports whether q waits for a number and d may be the one.
func (d *delivery) before(q *delivery) bool {
	return !q.missing.IsZero() && d.Sequence > 0 && d.Sequence < q.Sequence
}

func (l *lanes) offer(at *lane) {
	l.ready = append(l.ready, at)
	l.cond.Broadcast()
}

// take hands out up to n messages, in the order in which they are to be handled. It waits for the first; none means that
// everything ends.
func (l *lanes) take(n int) []*delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	for (len(l.ready) == 0 || l.closed) && !l.stopped {
		l.cond.Wait()
	}
	var batch []*delivery
	for !l.stopped && len(l.ready) > 0 && len(batch) < n {
		at := l.ready[0]
		l.ready = l.ready[1:]
		at.taken = min(n-len(batch), len(at.queue))
		batch = append(batch, at.queue[:at.taken]...)
	}
	return batch
}

// done takes messages out that were handed out: nothing is left to do about them.
func (l *lanes) done(batch ...*delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range batch {
		key := d.key()
		at := l.lanes[key]
		at.queue = slices.DeleteFunc(at.queue, func(q *delivery) bool { return q == d })
		at.taken--
		switch {
		case at.taken > 0:
		case len(at.queue) == 0:
			delete(l.lanes, key)
		default:
			l.offer(at)
		}
	}
}

// retry gives back a message at the front of its lane, and what was handed out after it. It comes again after a pause, and
// the lane waits as long, unless what it waits for is further behind.
func (l *lanes) retry(d *delivery, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.lanes[d.key()]
	at.taken = 0
	if l.stopped {
		return
	}
	for i, q := range at.queue {
		if q.before(d) {
			at.queue = slices.Insert(slices.Delete(at.queue, i, i+1), 0, q)
			l.offer(at)
			return
		}
	}
	at.timer = time.AfterFunc(pause, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		at.timer = nil
		l.offer(at)
	})
}

// shut makes take wait until open is called with what shutting returned last.
func (l *lanes) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.shuts++
}

func (l *lanes) shutting() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shuts
}

// open reports false if take still waits, because of another shut since.
func (l *lanes) open(shuts uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shuts != shuts {
		return false
	}
	l.closed = false
	l.cond.Broadcast()
	return true
}

// waiting counts the messages that nobody has.
func (l *lanes) waiting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.lanes {
		n += len(at.queue) - at.taken
	}
	return n
}

// all returns the messages that are here.
func (l *lanes) all() []*delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*delivery
	for _, at := range l.lanes {
		all = append(all, at.queue...)
	}
	return all
}

// stop ends put and take, and what waits.
func (l *lanes) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	for _, at := range l.lanes {
		if at.timer != nil {
			at.timer.Stop()
		}
	}
	l.cond.Broadcast()
}
