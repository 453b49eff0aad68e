package app

import (
	"context"
	"sync"
	"time"

	"github.com/seed-1cfd9858/relay/publisher"
)

// streamWatch asks NATS about the stream while somebody looks at the page, at most once in streamEvery, over a connection of
// its own. Nobody waits for the answer.
type streamWatch struct {
	ctx context.Context // ends the questions
	ask func(ctx context.Context) (publisher.Stream, error)

	mu      sync.Mutex
	asking  bool
	askedAt time.Time
	answer  *publisher.Stream
	err     error
	owner   sync.WaitGroup
}

const streamEvery = 30 * time.Second

// newStreamWatch returns a watch and what ends it.
func newStreamWatch(ctx context.Context, ask func(context.Context) (publisher.Stream, error)) (w *streamWatch, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	w = &streamWatch{ctx: ctx, ask: ask}
	return w, func() {
		w.mu.Lock()
		cancel() // no question begins from here on
		w.mu.Unlock()
		w.owner.Wait()
	}
}

// wanted asks if the last answer is old.
func (w *streamWatch) wanted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking || w.ctx.Err() != nil || time.Since(w.askedAt) < streamEvery {
		return
	}
	w.asking = true
	w.owner.Go(func() {
		ctx, cancel := context.WithTimeout(w.ctx, questionTimeout)
		defer cancel()
		s, err := w.ask(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asking, w.askedAt, w.answer, w.err = false, time.Now(), nil, err
		if err == nil {
			w.answer = &s
		}
	})
}

// last returns the last answer and when it came: neither one nor an error before the first.
func (w *streamWatch) last() (s *publisher.Stream, at time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answer, w.askedAt, w.err
}
