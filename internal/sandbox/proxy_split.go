package sandbox

import (
	"math"
	"strings"
	"time"
)

// protocol knows the messages of one direction of a connection.
type protocol interface {
	// frame looks at the bytes from the start of a message. It returns how many of them judge needs, which may grow with what
	// is there, and the message's whole size, which is known when there are as many.
	frame(b []byte) (want, size int)
	// judge asks the hook about a message of which at least want bytes are there.
	judge(head []byte, size int) Action
}

// opaque is the size of a message that never ends: from there on the bytes are passed on unread.
const opaque = math.MaxInt

// splitter cuts a direction's bytes into messages, whatever their chunks, and asks the hooks. Of a message it keeps no more
// than judge needs. It belongs to one goroutine.
type splitter struct {
	proxy      *Proxy
	connection int
	toServer   bool
	shared     *pgShared

	protocol protocol // nil before the first byte
	pending  []byte   // the start of a message that is not judged yet
	rest     int      // what is still to come of the message that was judged last
	dropping bool     // it is dropped

	out []piece
}

// feed takes the next bytes and returns what is to be done with those that are decided.
func (s *splitter) feed(chunk []byte) []piece {
	s.out = nil
	s.pending = append(s.pending, chunk...)
	for len(s.pending) > 0 {
		if s.rest > 0 {
			s.take(min(s.rest, len(s.pending)))
			continue
		}
		if s.protocol == nil {
			s.protocol = s.recognise(s.pending[0])
		}
		want, size := s.protocol.frame(s.pending)
		if want > len(s.pending) {
			break
		}
		_, released := s.proxy.state() // before the hook runs: it may tell somebody, who releases at once
		switch s.protocol.judge(s.pending[:min(size, len(s.pending))], size) {
		case Forward:
			s.dropping = false
		case Hold:
			s.dropping = false
			s.add(piece{held: released})
		case Drop:
			s.dropping = true
		case CutConnection:
			s.add(piece{end: resetting})
			return s.out
		}
		s.rest = size
	}
	return s.out
}

// take moves the first n pending bytes to the output, or nowhere if they are dropped.
func (s *splitter) take(n int) {
	if !s.dropping {
		s.add(piece{data: s.pending[:n]})
	}
	s.pending = s.pending[n:]
	if s.rest != opaque {
		s.rest -= n
	}
}

// add appends to the output; neighbouring bytes become one piece.
func (s *splitter) add(p piece) {
	if last := len(s.out) - 1; last >= 0 && p.held == nil && p.end == open {
		s.out[last].data = append(s.out[last].data, p.data...)
		return
	}
	p.data = append([]byte(nil), p.data...)
	if delay, _ := s.proxy.state(); delay > 0 {
		p.due = time.Now().Add(delay)
	}
	s.out = append(s.out, p)
}

// recognise tells the protocol by the first byte: a PostgreSQL client starts with a length below 2^24, a NATS client with
// CONNECT; a PostgreSQL server with one of a few types of message, a NATS server with INFO. All else is passed on unread.
func (s *splitter) recognise(first byte) protocol {
	const pgServerFirst = "RENSGv" // authentication, error, notice, or the answer to a request for encryption
	switch {
	case s.toServer && first == 0, !s.toServer && strings.IndexByte(pgServerFirst, first) >= 0:
		return &pgProtocol{splitter: s, startup: s.toServer}
	case s.toServer && (first == 'C' || first == 'c'), !s.toServer && first == 'I':
		return &natsProtocol{splitter: s}
	default:
		return unknownProtocol{}
	}
}

// unknownProtocol is one endless message.
type unknownProtocol struct{}

func (unknownProtocol) frame([]byte) (want, size int) { return 0, opaque }

func (unknownProtocol) judge([]byte, int) Action { return Forward }
