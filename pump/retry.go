package pump

import (
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pglogrepl"
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

// silence is how long a server may be silent before its session is given up: the session timeout at first. A walsender that
// works through a large transaction of other tables can be silent for longer, and a session that is given up then begins
// the same work again. So after each silent session the next one gets twice the time, until one has passed all the WAL that
// was there when it began. Less than that proves nothing: on the way to such a commit a server answers, and confirms move.
type silence struct {
	base   time.Duration
	longer int           // how often it has been doubled
	end    pglogrepl.LSN // of the WAL when the present session began
	passed bool          // the session came there
}

// maxPatience bounds the doubling.
const maxPatience = 10 * time.Minute

func (s *silence) patience() time.Duration { return max(s.base, min(s.base<<s.longer, maxPatience)) }

// began takes where the WAL ended when a session began.
func (s *silence) began(end *pglogrepl.LSN) {
	if s.end, s.passed = 0, false; end != nil {
		s.end = *end
	}
}

// read takes how far the server has read the WAL for the session.
func (s *silence) read(lsn pglogrepl.LSN) {
	s.passed = s.passed || lsn >= s.end
}

// ended takes how a session ended.
func (s *silence) ended(silent bool) {
	switch {
	case s.passed:
		s.longer = 0
	case silent && s.patience() < maxPatience:
		s.longer++
	}
}
