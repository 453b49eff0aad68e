package outbox

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// textArena makes the strings of many events in one allocation.
type textArena struct{ b strings.Builder }

const arenaBytes = 64 << 10

func (a *textArena) string(p []byte) string {
	if len(p) == 0 {
		return ""
	}
	if a.b.Cap()-a.b.Len() < len(p) {
		a.b = strings.Builder{}
		a.b.Grow(max(len(p), arenaBytes))
	}
	start := a.b.Len()
	a.b.Write(p)
	return a.b.String()[start:]
}

// byteArena hands out room for the payloads of many events from one allocation. A large one gets its own, so that it can
// be collected with its event.
type byteArena struct{ free []byte }

func (a *byteArena) take(n int) []byte {
	if n > arenaBytes/8 {
		return make([]byte, 0, n)
	}
	if len(a.free) < n {
		a.free = make([]byte, arenaBytes)
	}
	room := a.free[0:0:n]
	a.free = a.free[n:]
	return room
}

// reader reads big-endian fields; after the first that is not there it is bad and gives zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) skip(n int) { r.bytes(n) }

func (r *reader) byte() byte {
	if p := r.bytes(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if p := r.bytes(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if p := r.bytes(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (r *reader) string() string {
	end := bytes.IndexByte(r.b, 0)
	if end < 0 {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:end])
	r.b = r.b[end+1:]
	return s
}
