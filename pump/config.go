package pump

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/replication"
	"github.com/seed-1cfd9858/relay/slot"
)

// Defaults of a Config.
const (
	DefaultDrainTimeout = 10 * time.Second
	DefaultYieldAfter   = time.Minute
)

// Config says what one relay does. A duration of zero is the default, except where said.
type Config struct {
	Slot      slot.Config
	Publisher publisher.Config

	// Inspect looks at the slot, the publication and the table. Nil: in the catalogue, over a connection of its own.
	// Simulation gives the state of its model.
	Inspect func(ctx context.Context) (slot.State, error)

	// Observe is told, each time that answers of the broker were taken, how long ago the oldest event that they store had
	// committed. It must not block. Nil: nobody.
	Observe func(time.Duration)

	// Random gives numbers from 0 up to 1 for the jitter of retries. Nil: math/rand/v2. Simulation gives its own, so that a
	// seed repeats.
	Random func() float64

	// SessionTimeout is how long PostgreSQL and the relay wait for a sign of life of each other, and so how long the slot
	// of a dead relay stays taken. A server that was silent for so long without progress is given twice as long in the next
	// session, and so on. Default replication.DefaultTimeout, at least replication.MinTimeout.
	SessionTimeout time.Duration
	// DrainTimeout bounds how long a stopping relay goes on storing what it has read.
	DrainTimeout time.Duration
	// YieldAfter is how long a leader waits for a broker while events wait, before it leaves the slot to others for some
	// seconds. Negative: for ever.
	YieldAfter time.Duration
	// ConfirmDelay holds confirmations back, so that a broker that loses what it acked in that time before a crash gets it
	// again. Zero: none.
	ConfirmDelay time.Duration
}

// Validate joins all that is wrong, without a connection.
func (c Config) Validate() error {
	errs := []error{c.Slot.Validate(), c.Publisher.Validate()}
	bad := func(key string, value time.Duration, reason string) {
		errs = append(errs, fmt.Errorf("%s %s: %s", key, value, reason))
	}
	if c.SessionTimeout != 0 && c.SessionTimeout < replication.MinTimeout {
		bad("session-timeout", c.SessionTimeout, fmt.Sprintf("want at least %s", replication.MinTimeout))
	}
	if c.DrainTimeout < 0 {
		bad("drain-timeout", c.DrainTimeout, "want a positive duration")
	}
	if c.ConfirmDelay < 0 {
		bad("confirm-delay", c.ConfirmDelay, "want a duration, or 0 for none")
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&c.SessionTimeout, replication.DefaultTimeout},
		{&c.DrainTimeout, DefaultDrainTimeout},
		{&c.YieldAfter, DefaultYieldAfter},
	} {
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	// A frozen broker must not hold the loop while PostgreSQL waits for an answer.
	if conn := &c.Publisher.Conn; conn.WriteTimeout == 0 {
		conn.WriteTimeout = min(2*time.Second, c.SessionTimeout/3)
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	return c
}
