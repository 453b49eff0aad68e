package main

import "sync"

// errands are goroutines that somebody may start while somebody else waits for the end of all: a sync.WaitGroup forbids that.
type errands struct {
	mu   sync.Mutex
	idle *sync.Cond
	n    int
}

func newErrands() *errands {
	e := &errands{}
	e.idle = sync.NewCond(&e.mu)
	return e
}

func (e *errands) Go(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n++
	go func() {
		defer e.done()
		do()
	}()
}

func (e *errands) done() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n--; e.n == 0 {
		e.idle.Broadcast()
	}
}

// Wait returns when none is under way.
func (e *errands) Wait() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.n > 0 {
		e.idle.Wait()
	}
}
