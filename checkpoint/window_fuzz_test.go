package checkpoint

import (
	"testing"

	"github.com/jackc/pglogrepl"
)

// twin is the window as I1 defines it: it keeps every transaction and looks at all of them each time.
type twin struct {
	floor        pglogrepl.LSN // what the server or a keepalive at rest has vouched for
	transactions []transaction
	read         uint64
	stored       []bool // by ordinal - 1
}

type transaction struct {
	events []uint64 // ordinals
	ended  bool
	end    pglogrepl.LSN
}

func (w *twin) open() bool {
	return len(w.transactions) > 0 && !w.transactions[len(w.transactions)-1].ended
}

func (w *twin) settled() bool {
	for _, s := range w.stored {
		if !s {
			return false
		}
	}
	return true
}

func (w *twin) low() pglogrepl.LSN {
	low := w.floor
	for _, tx := range w.transactions {
		if !tx.ended {
			return low
		}
		for _, ordinal := range tx.events {
			if !w.stored[ordinal-1] {
				return low
			}
		}
		low = max(low, tx.end)
	}
	return low
}

func (w *twin) keepalive(end pglogrepl.LSN) {
	if w.settled() && !w.open() {
		w.floor = max(w.floor, end)
	}
}

// FuzzI1_Window plays the bytes as calls into a window and into its twin. Each byte is a call (its low three bits) with an
// argument (the others). LSNs mostly rise, as they do on a stream, but not always: what is confirmed must not go down.
func FuzzI1_Window(f *testing.F) {
	for _, seed := range [][]byte{
		{0, 1, 2 | 1<<3, 4 | 31<<3},
		{0, 2, 0, 2, 3, 0, 1, 2, 0, 2 | 2<<3, 3 | 3<<3, 4 | 31<<3, 3 | 9<<3},
		{0, 1, 1, 1, 4 | 1<<3, 4 | 31<<3, 2 | 5<<3, 5 | 8<<3, 6 | 9<<3},
		{0, 1, 2, 0, 1, 2, 0, 1, 2, 4 | 1<<3, 0, 1, 2, 0, 1, 2, 4 | 2<<3, 0, 1, 2, 4 | 31<<3},
		{3 | 4<<3, 5 | 7<<3, 6 | 31<<3, 0, 3 | 30<<3, 1, 7, 2},
	} {
		f.Add(uint16(100), seed)
	}
	f.Fuzz(func(t *testing.T, confirmed uint16, calls []byte) {
		if len(calls) > 300 {
			return // the twin is quadratic
		}
		low := pglogrepl.LSN(confirmed)
		w, dumb := New(low), &twin{floor: low}
		at := low
		var stored uint64
		for i, call := range calls {
			argument := uint64(call >> 3)
			switch call & 7 {
			case 0:
				if w.Open() {
					continue
				}
				w.Begin()
				dumb.transactions = append(dumb.transactions, transaction{})
			case 1:
				if !w.Open() {
					continue
				}
				w.Event()
				dumb.read++
				dumb.stored = append(dumb.stored, false)
				last := &dumb.transactions[len(dumb.transactions)-1]
				last.events = append(last.events, dumb.read)
			case 2:
				if !w.Open() {
					continue
				}
				at += pglogrepl.LSN(argument)
				w.Commit(at)
				last := &dumb.transactions[len(dumb.transactions)-1]
				last.ended, last.end = true, at
			case 3:
				at += pglogrepl.LSN(argument)
				w.Keepalive(at)
				dumb.keepalive(at)
			case 4, 7:
				stored += min(argument, dumb.read-stored)
				w.Stored(stored)
				for ordinal := range stored {
					dumb.stored[ordinal] = true
				}
			case 5:
				w.Raise(at + pglogrepl.LSN(argument))
				dumb.floor = max(dumb.floor, at+pglogrepl.LSN(argument))
			case 6:
				at -= min(at, pglogrepl.LSN(argument))
			}
			if w.Low() != dumb.low() || w.Open() != dumb.open() || w.Settled() != dumb.settled() {
				t.Fatalf("call %d: Low %s, open %v, settled %v; the twin has %s, %v, %v", i,
					w.Low(), w.Open(), w.Settled(), dumb.low(), dumb.open(), dumb.settled())
			}
			if w.Low() < low {
				t.Fatalf("call %d: Low went down from %s to %s", i, low, w.Low())
			}
			low = w.Low()
			if waiting := dumb.read - stored; uint64(len(w.marks)-w.first) > waiting {
				t.Fatalf("call %d: %d marks for %d events that wait", i, len(w.marks)-w.first, waiting)
			}
		}
	})
}
