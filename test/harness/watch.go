package harness

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/outbox"
)

// sampling is how often a Watch looks.
const sampling = 20 * time.Millisecond

// Watch looks at the slot and the stream all the time, from outside: what was confirmed, by whom the slot was held, how far
// the stream was. Stop ends it and judges. It is safe for concurrent use.
type Watch struct {
	w      *World
	conn   *pgx.Conn
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	samples []sample
	pids    []int32 // that have held the slot, in order
	faults  []string
	limit   pglogrepl.LSN // 0: none
}

// sample pairs a confirmed LSN with the stream's last sequence right after it was read: what that LSN covers has to be in
// the stream by then.
type sample struct {
	confirmed pglogrepl.LSN
	sequence  uint64 // 0: the stream could not be asked
}

// Watch begins to look. Use it as: watch := w.Watch(); defer watch.Stop().
func (w *World) Watch() *Watch {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.Database)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	x := &Watch{w: w, conn: conn, cancel: cancel}
	x.done.Go(func() {
		tick := time.NewTicker(sampling)
		defer tick.Stop()
		for ctx.Err() == nil {
			x.look(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return x
}

func (x *Watch) look(ctx context.Context) {
	var text *string
	var pid *int32
	err := x.conn.QueryRow(ctx, `SELECT confirmed_flush_lsn::text, active_pid FROM pg_replication_slots WHERE slot_name = $1`,
		x.w.Slot).Scan(&text, &pid)
	if err != nil || text == nil {
		return // no slot, or none yet
	}
	lsn, err := pglogrepl.ParseLSN(*text)
	if err != nil {
		return
	}
	s := sample{confirmed: lsn, sequence: x.lastSequence(ctx)}

	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.samples); n > 0 && lsn < x.samples[n-1].confirmed {
		x.faults = append(x.faults, fmt.Sprintf("the confirmed LSN went back from %s to %s", x.samples[n-1].confirmed, lsn))
	}
	if x.limit != 0 && lsn >= x.limit {
		x.faults = append(x.faults, fmt.Sprintf("%s is confirmed, %s or more may not be", lsn, x.limit))
	}
	if pid != nil && (len(x.pids) == 0 || x.pids[len(x.pids)-1] != *pid) {
		x.pids = append(x.pids, *pid)
	}
	if n := len(x.samples); n == 0 || x.samples[n-1].confirmed != lsn {
		x.samples = append(x.samples, s)
	}
}

func (x *Watch) lastSequence(ctx context.Context) uint64 {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	stream, err := x.w.JS.Stream(ctx, x.w.StreamName)
	if err != nil {
		return 0
	}
	return stream.CachedInfo().State.LastSeq
}

// Limit sets an LSN that may not be confirmed, nor any above it. 0 lifts the limit.
func (x *Watch) Limit(lsn pglogrepl.LSN) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.limit = lsn
}

// Holders returns the walsenders that have held the slot, in order.
func (x *Watch) Holders() []int32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.pids)
}

// Confirmed returns the confirmed LSNs that were seen, in order, each once.
func (x *Watch) Confirmed() []pglogrepl.LSN {
	x.mu.Lock()
	defer x.mu.Unlock()
	lsns := make([]pglogrepl.LSN, len(x.samples))
	for i, s := range x.samples {
		lsns[i] = s.confirmed
	}
	return lsns
}

// Stop ends the watch, and fails the test if the confirmed LSN ever went back, passed a limit, or covered an event that was
// not in the stream. It can be called more than once; only the first call judges.
func (x *Watch) Stop() {
	x.w.t.Helper()
	if x.end() && !x.w.t.Failed() {
		x.judge(x.w.Messages())
	}
}

// StopWith is Stop for a stream that does not hold all its messages any more.
func (x *Watch) StopWith(messages []Message) {
	x.w.t.Helper()
	if x.end() {
		x.judge(messages)
	}
}

// end stops looking and reports whether this was the call that did.
func (x *Watch) end() bool {
	x.cancel()
	x.done.Wait()
	if x.conn == nil {
		return false
	}
	_ = x.conn.Close(context.WithoutCancel(x.w.t.Context()))
	x.conn = nil
	return true
}

func (x *Watch) judge(messages []Message) {
	x.w.t.Helper()
	faults := x.faults
	for _, m := range messages {
		_, position, err := outbox.ParsePosition(m.Position)
		if err != nil {
			continue // not a relay's
		}
		first := sort.Search(len(x.samples), func(i int) bool { return position.CommitLSN < x.samples[i].confirmed })
		for _, s := range x.samples[first:min(first+1, len(x.samples))] {
			if s.sequence != 0 && m.Sequence > s.sequence {
				faults = append(faults, fmt.Sprintf("%s was confirmed while the stream ended at %d: event %s, sequence %d, position %s, was not stored",
					s.confirmed, s.sequence, m.ID, m.Sequence, m.Position))
			}
		}
	}
	if len(faults) > 0 {
		x.w.t.Errorf("%d faults:\n%s", len(faults), strings.Join(faults[:min(len(faults), 5)], "\n"))
	}
}
