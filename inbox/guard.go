package inbox

import (
	"context"
	"time"
)

// elsewhere notes that something was delivered and did not come here: to a process that has died, or on a connection that
// broke. It comes again when its ack deadline has passed, behind what follows it. Nothing is handled until it is here, or done.
func (r *runner) elsewhere() {
	if r.Shared {
		return
	}
	r.lanes.shut()
	select {
	case r.gap <- struct{}{}:
	default:
	}
}

// guard lets the lanes go on once everything that JetStream waits for an ack of is in them: they have the order of the stream.
func (r *runner) guard(ctx context.Context, ackWait time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.gap:
		}
		for opened := false; !opened; {
			shuts := r.lanes.shutting()
			r.Log.Info("waiting for events that were delivered before and are not done", "consumer", r.Name, "at_most", 2*ackWait)
			if !r.complete(ctx, 2*ackWait) {
				r.Log.Warn("events that were delivered elsewhere are not done: what follows them is handled now. If another process "+
					"consumes, too, set Shared", "consumer", r.Name, "waited", 2*ackWait)
			}
			opened = r.lanes.open(shuts)
		}
	}
}

// complete waits until all that is not acked is here, and reports whether it was before the limit.
func (r *runner) complete(ctx context.Context, limit time.Duration) bool {
	began := time.Now()
	pauses := r.newPauses()
	pauses.MaxInterval = time.Second
	for time.Since(began) < limit {
		info, err := r.Consumer.Info(ctx)
		// Counted after the question: what is acked meanwhile is missing in the count, not in the answer.
		if err == nil && info.NumAckPending <= r.lanes.waiting() {
			return true
		}
		if !wait(ctx.Done(), pauses.NextBackOff()) {
			return true
		}
	}
	return false
}
