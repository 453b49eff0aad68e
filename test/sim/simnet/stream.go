package simnet

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// stream is one direction of a connection: a bounded buffer of bytes that arrive some time after they were written.
type stream struct {
	link Link

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something changes that somebody may wait for
	waiters bool          // changed was handed out
	chunks  []chunk
	size    int
	last    time.Time // when the last chunk arrives: a byte never overtakes another
	held    bool
	parked  bool    // the writer is frozen: what it writes goes when it goes on
	later   []chunk // written while parked
	end     error   // what the reader gets after the chunks; a writer gets EPIPE
}

type chunk struct {
	data []byte
	at   time.Time
}

func newStream(link Link) *stream { return &stream{link: link, changed: make(chan struct{})} }

func (s *stream) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signal()
}

func (s *stream) signal() {
	if s.waiters {
		close(s.changed)
		s.changed, s.waiters = make(chan struct{}), false
	}
}

func (s *stream) wait() <-chan struct{} {
	s.waiters = true
	return s.changed
}

// take reads what has arrived. Without bytes and error it says when to look again, and what tells earlier.
func (s *stream) take(b []byte, deadline time.Time) (int, time.Time, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !deadline.IsZero() && !now.Before(deadline) {
		return 0, time.Time{}, nil, os.ErrDeadlineExceeded
	}
	n := 0
	for !s.held && n < len(b) && len(s.chunks) > 0 && !now.Before(s.chunks[0].at) {
		m := copy(b[n:], s.chunks[0].data)
		n += m
		s.size -= m
		if s.chunks[0].data = s.chunks[0].data[m:]; len(s.chunks[0].data) == 0 {
			s.chunks = s.chunks[1:]
		}
	}
	if n > 0 {
		s.signal() // there is room again
		return n, time.Time{}, nil, nil
	}
	if s.end != nil && len(s.chunks) == 0 && !s.held {
		return 0, time.Time{}, nil, s.end
	}
	next := deadline
	if !s.held && len(s.chunks) > 0 && (next.IsZero() || s.chunks[0].at.Before(next)) {
		next = s.chunks[0].at
	}
	return 0, next, s.wait(), nil
}

// put writes what there is room for.
func (s *stream) put(b []byte, deadline time.Time) (int, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.end != nil:
		return 0, nil, syscall.EPIPE
	case !deadline.IsZero() && !time.Now().Before(deadline):
		return 0, nil, os.ErrDeadlineExceeded
	}
	n := min(len(b), s.link.Buffer-s.size)
	if n > 0 {
		at := time.Now().Add(s.link.latency())
		if at.Before(s.last) {
			at = s.last
		}
		s.last = at
		one := chunk{data: append([]byte(nil), b[:n]...), at: at}
		s.size += n
		if s.parked {
			s.later = append(s.later, one)
		} else {
			s.chunks = append(s.chunks, one)
		}
		s.signal()
	}
	return max(n, 0), s.wait(), nil
}

// finish ends the stream, at once or after what is on the way.
func (s *stream) finish(end error, lose bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lose {
		s.chunks, s.later, s.size, s.held = nil, nil, 0, false
	}
	if s.end == nil || s.end == io.EOF { //nolint:errorlint // set here only
		s.end = end
	}
	s.signal()
}

func (s *stream) park(parked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked = parked
	if !parked && len(s.later) > 0 {
		s.chunks, s.later = append(s.chunks, s.later...), nil
		s.signal()
	}
}

func (s *stream) hold(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	s.signal()
}
