package publisher

import (
	"math/bits"

	"github.com/seed-1cfd9858/relay/outbox"
)

// window holds the events that are read and not yet stored, by ordinal: 1..stored are stored, ..sent are sent or need no
// sending, ..read are read. It is the relay's only buffer, so its bounds are the relay's (I8).
type window struct {
	slots              []slot // a ring; the slot of an ordinal is slots[ordinal&mask]
	mask               uint64
	stored, sent, read uint64

	bytes    int // of the events in it
	maxBytes int
	max      uint64
}

type slot struct {
	event   outbox.Event
	done    bool // stored already, or never to be stored: not to be sent
	unknown bool // not yet compared with the whole tail: not to be sent now
}

func newWindow(events, bytes int) *window {
	size := 1 << bits.Len(uint(events)) // at least one more than the bound: the slot that is being filled
	return &window{slots: make([]slot, size), mask: uint64(size - 1), max: uint64(events), maxBytes: bytes}
}

func (w *window) at(ordinal uint64) *slot { return &w.slots[ordinal&w.mask] }

// full reports whether no further event may be read. The last event that is admitted may pass the byte bound by its own
// size, which nobody knows before it is read.
func (w *window) full() bool { return w.read-w.stored >= w.max || w.bytes >= w.maxBytes }

// next returns the slot that is filled next; admit makes it part of the window.
func (w *window) next() *slot { return w.at(w.read + 1) }

func (w *window) admit() *slot {
	w.read++
	s := w.at(w.read)
	s.done, s.unknown = false, false
	w.bytes += s.event.Size()
	return s
}

// pop takes the oldest event out: it is stored, or need not be.
func (w *window) pop() {
	w.stored++
	s := w.at(w.stored)
	w.bytes -= s.event.Size()
	*s = slot{} // its bytes can be collected
}

// reset empties the window.
func (w *window) reset() {
	clear(w.slots)
	w.stored, w.sent, w.read, w.bytes = 0, 0, 0, 0
}
