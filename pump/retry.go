package pump

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// retry is the one kind of waiting between tries: 100 ms doubling up to 5 s, give or take a fifth. It is reset by progress,
// not by a connection.
type retry struct {
	steps  *backoff.ExponentialBackOff
	random func() float64
}

func newRetry(random func() float64) *retry {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.RandomizationFactor, b.Multiplier, b.MaxInterval = 100*time.Millisecond, 0, 2, 5*time.Second
	b.Reset()
	return &retry{steps: b, random: random}
}

// next returns how long to wait before the next try.
func (r *retry) next() time.Duration {
	const jitter = 0.2
	return time.Duration(float64(r.steps.NextBackOff()) * (1 - jitter + 2*jitter*r.random()))
}

func (r *retry) reset() { r.steps.Reset() }
