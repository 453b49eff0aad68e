package main

import (
	"context"
	"errors"
	"strconv"
)

// keep leaves everything running until ctx ends, and says what can be done meanwhile.
func (d *demo) keep(ctx context.Context) {
	r := d.relays[len(d.relays)-1]
	r.expected.Store(true) // it may be killed, that is part of the play
	d.story.chapter("Everything is still running, until Ctrl-C")
	d.story.line("  PostgreSQL  " + d.world.url())
	d.story.line("  NATS        " + d.world.nats.URL())
	d.story.line("")
	d.story.line("  Paste this into another terminal, in the same folder:")
	d.story.line("")
	d.story.line("export RELAY_DATABASE_URL='" + d.world.url() + "' NATS_URL='" + d.world.nats.URL() + "'")
	d.story.line("go run . status")
	d.story.line("")
	d.story.line("  And, if you like: another order, a look at the stream, a crash and the next relay.")
	d.story.line("")
	d.story.line(`psql "$RELAY_DATABASE_URL" -c "INSERT INTO outbox (id, topic, payload) VALUES (gen_random_uuid(), 'order.placed', '{\"id\": \"00000000-0000-0000-0000-000000000001\", \"customer\": \"you\", \"cents\": 1}')"`)
	d.story.line("nats stream view " + streamName)
	d.story.line("kill -9 " + strconv.Itoa(r.PID()) + "; go run . run")
	<-ctx.Done()
}

// close ends everything that was started: in good order after a good end, at once otherwise.
func (d *demo) close(ctx context.Context, orderly bool) error {
	d.story.now("taking everything away")
	defer d.story.now("")
	var errs []error
	for _, r := range d.relays {
		if orderly {
			errs = append(errs, r.stop(ctx))
			continue
		}
		r.expected.Store(true)
		errs = append(errs, r.Close())
	}
	d.fail(nil)
	d.workers.Wait()
	if d.world != nil {
		errs = append(errs, d.world.close())
	}
	return errors.Join(errs...)
}
