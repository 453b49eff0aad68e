package checkpoint

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// Window maps stored events to the LSN that may be confirmed. Events have ordinals 1, 2, 3, ... in the order in which
// they are read. It keeps a mark for each transaction that has events not yet stored, so it is bounded by them.
// It is owned by one goroutine.
//
// What may be confirmed when the relay dies right after any of these calls is what the calls before it justify: every
// method leaves Low true.
type Window struct {
	// low is I1: at most the end LSN of the last transaction all of whose events, and those of all transactions before
	// it, are stored. It never goes down.
	low    pglogrepl.LSN
	read   uint64 // ordinal of the last event read
	stored uint64 // events 1..stored are stored
	open   bool   // a transaction has begun and not ended

	marks []mark // of transactions that end above stored, in order
	first int    // marks[first:] are in use
}

type mark struct {
	ordinal uint64 // of the transaction's last event
	end     pglogrepl.LSN
}

// New returns a window of a session whose slot has this confirmed LSN.
func New(confirmed pglogrepl.LSN) *Window { return &Window{low: confirmed} }

// Low returns the highest LSN that may be confirmed (I1).
func (w *Window) Low() pglogrepl.LSN { return w.low }

// Open reports whether a transaction has begun and not ended.
func (w *Window) Open() bool { return w.open }

// Settled reports whether everything that was read is stored.
func (w *Window) Settled() bool { return w.stored == w.read }

// Raise lifts Low to a confirmed LSN that became known after the session began.
func (w *Window) Raise(confirmed pglogrepl.LSN) { w.low = max(w.low, confirmed) }

// Begin notes that a transaction begins.
func (w *Window) Begin() {
	if w.open {
		panic("I1: a transaction begins inside another")
	}
	w.open = true
}

// Event notes that one more event was read. It belongs to the open transaction.
func (w *Window) Event() {
	if !w.open {
		panic("I1: an event outside a transaction")
	}
	w.read++
}

// Commit notes that the open transaction ends at this LSN: the end of its commit record, not the record's start, which
// would bring the transaction back.
func (w *Window) Commit(end pglogrepl.LSN) {
	if !w.open {
		panic("I1: a commit outside a transaction")
	}
	w.open = false
	w.mark(end)
}

// Keepalive notes the WAL end of a keepalive message. It counts only if nothing waits to be stored and no transaction is
// open (I3): then the server has nothing for us up to there, and an outbox at rest does not hold the WAL of its
// busy neighbours.
func (w *Window) Keepalive(walEnd pglogrepl.LSN) {
	if !w.open && w.Settled() {
		w.mark(walEnd)
	}
}

// Stored notes that events 1..n are stored. n never goes down and never passes what was read.
func (w *Window) Stored(n uint64) {
	if n < w.stored || n > w.read {
		panic(fmt.Sprintf("I1: stored %d of %d read, after %d", n, w.read, w.stored))
	}
	w.stored = n
	for w.first < len(w.marks) && w.marks[w.first].ordinal <= n {
		w.low = max(w.low, w.marks[w.first].end)
		w.first++
	}
	if w.first == len(w.marks) {
		w.marks, w.first = w.marks[:0], 0
	}
}

// mark lets Low rise to end once all that was read is stored. A transaction without events only moves the mark before it.
func (w *Window) mark(end pglogrepl.LSN) {
	switch last := len(w.marks) - 1; {
	case w.Settled():
		w.low = max(w.low, end)
	case last >= w.first && w.marks[last].ordinal == w.read:
		w.marks[last].end = max(w.marks[last].end, end)
	default:
		if w.first > len(w.marks)/2 { // use the room of what is stored before asking for more
			w.marks, w.first = w.marks[:copy(w.marks, w.marks[w.first:])], 0
		}
		w.marks = append(w.marks, mark{ordinal: w.read, end: end})
	}
}
