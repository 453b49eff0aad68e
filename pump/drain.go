package pump

import (
	"context"
	"time"
)

// draining reports whether nothing more is read.
func (l *leader) draining() bool { return !l.drain.IsZero() }

// stopping begins to drain when ctx has ended.
func (l *leader) stopping(ctx context.Context, now time.Time) {
	if ctx.Err() != nil && !l.draining() {
		events, _ := l.publisher.Waiting()
		l.log.Info("stopping: storing what is read", "cause", context.Cause(ctx), "events_waiting", events)
		l.beginDrain(now)
	}
}

func (l *leader) beginDrain(now time.Time) {
	l.drain = now.Add(l.cfg.DrainTimeout)
	l.setState(StateDraining, l.Status().WaitingFor)
}

// finish reports whether draining is over, and gives the last confirmation: what is stored, without the confirm delay.
// What is left then is what the next relay reads again from the slot, apart from what it finds in the stream.
func (l *leader) finish(now time.Time) (bool, error) {
	if !l.draining() {
		return false, nil
	}
	events, _ := l.publisher.Waiting()
	switch {
	case events == 0, l.blocked:
	case now.Before(l.drain):
		return false, nil
	default:
		l.log.Warn("the drain timeout has passed: the events that are left will be sent by the next relay", "events_left", events)
	}
	if l.confirmable() {
		l.delay.Flush()
		l.session.Confirm(l.delay.Low(now))
	}
	if err := l.session.Flush(now); err != nil {
		l.log.Warn("the last confirmation did not reach PostgreSQL: the next relay finds the events in the stream", "err", err)
	}
	l.publishStatus()
	l.log.Info("stopped", "confirmed_lsn", l.session.Confirmed())
	return true, l.halt
}
