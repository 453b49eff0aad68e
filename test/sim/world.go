package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/pump"
	"github.com/seed-1cfd9858/relay/slot"
	"github.com/seed-1cfd9858/relay/test/sim/history"
	"github.com/seed-1cfd9858/relay/test/sim/jsmodel"
	"github.com/seed-1cfd9858/relay/test/sim/pgmodel"
	"github.com/seed-1cfd9858/relay/test/sim/simnet"
)

const slotName = "outbox_relay"

// world is one schedule: the models, the relays and the checker, all in one bubble.
type world struct {
	plan  Plan
	log   *history.Log
	check *history.Checker
	pg    *pgmodel.Server
	js    *jsmodel.Server
	slot  slot.Config

	rngMu   sync.Mutex
	rng     *rand.Rand // of latencies
	startMu sync.Mutex
	relays  []*relay // by number: the present one
	all     []*relay // every one that was ever started
	events  int
	rows    map[string]pgmodel.Row
	skip    map[string]bool // positions that the operator has told to leave out
	closing atomic.Bool     // no relay starts any more
	ended   bool            // the slot is lost: relays stop, and that is right
	pending *errands

	trapMu  sync.Mutex
	onStore []trap
	onMark  []trap // at a confirmation
}

// trap is something that happens after so many more of what it waits for.
type trap struct {
	left int
	do   func()
}

// random returns one of the plan's streams of random numbers, the same at every run.
func (p Plan) random(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(p.Seed, stream)) //nolint:gosec // repeatable on purpose
}

func newWorld(plan Plan) *world {
	table, err := outbox.ParseTable("public.outbox")
	if err != nil {
		panic(err)
	}
	w := &world{plan: plan, rows: map[string]pgmodel.Row{}, skip: map[string]bool{}, log: history.NewLog(), rng: plan.random(1), pending: newErrands(), slot: slot.Config{Slot: slotName, Publication: slotName, Table: table}}
	w.check = history.NewChecker(w.log, slotName+"@"+pgmodel.System)
	w.check.Reorders = slices.ContainsFunc(plan.Step, func(s Step) bool { return s.Kind == "foreign" || s.Kind == "foreign-id" })
	set := plan.Set
	w.pg = pgmodel.New(pgmodel.Config{
		Slot: w.slot, Major: set.Major, Chatter: set.Chatter, Ahead: set.Ahead, Pace: set.Pace, ReleaseTime: set.Release,
	}, observer{w}, w.log, plan.random(2))
	w.js = jsmodel.New(jsmodel.Config{
		Stream: "OUTBOX", Prefix: "outbox.", Refused: "outbox." + refusedTopic, Replicated: set.Replicated, Window: set.DupWindow, AckDelay: set.AckDelay, Quorum: set.Quorum,
	}, observer{w}, w.log, plan.random(3))
	w.relays = make([]*relay, set.Relays)
	for i := range w.relays {
		w.start(i)
	}
	return w
}

func (w *world) link() simnet.Link {
	return simnet.Link{Buffer: w.plan.Set.Buffer, Latency: func() time.Duration {
		if w.plan.Set.Latency == 0 {
			return 0
		}
		w.rngMu.Lock()
		defer w.rngMu.Unlock()
		return time.Duration(w.rng.Int64N(int64(w.plan.Set.Latency)))
	}}
}

// natsLink is a connection to NATS. Its buffer is never so small that it fills without a fault.
func (w *world) natsLink() simnet.Link {
	l := w.link()
	l.Buffer, l.NeverWait = max(16*l.Buffer, 32<<10), true
	return l
}

// later does something after a time, unless the schedule has ended by then.
func (w *world) later(after time.Duration, do func()) {
	w.pending.Go(func() {
		time.Sleep(after) //nolint:forbidigo // simulated
		do()
	})
}

// spring counts a trap down. What it does happens at once, on a goroutine of its own: the caller holds a server's lock.
func (w *world) spring(traps *[]trap) {
	w.trapMu.Lock()
	defer w.trapMu.Unlock()
	for i := 0; i < len(*traps); i++ {
		t := &(*traps)[i]
		if t.left--; t.left <= 0 {
			w.pending.Go(t.do)
			*traps = slices.Delete(*traps, i, i+1)
			i--
		}
	}
}

func (w *world) set(traps *[]trap, after int, do func()) {
	w.trapMu.Lock()
	defer w.trapMu.Unlock()
	*traps = append(*traps, trap{left: after, do: do})
}

// observer feeds the checker and the traps.
type observer struct{ w *world }

func (o observer) Committed(tx *pgmodel.Tx) {
	ids := make([]string, len(tx.Rows))
	for i, row := range tx.Rows {
		ids[i] = row.ID
	}
	defer func() { // once they are known
		for _, row := range tx.Rows {
			if row.Topic == poisonTopic || row.Topic == refusedTopic {
				o.w.check.Poison(row.ID)
			}
		}
	}()
	if len(ids) > 0 {
		o.w.log.Add("postgres", "commits %s..%s: %d events %s to %s", tx.Commit, tx.End, len(ids), ids[0], ids[len(ids)-1])
	}
	o.w.check.Commit(tx.Commit, tx.End, ids)
}

func (o observer) Forgotten(after pglogrepl.LSN) { o.w.check.Forget(after) }

func (o observer) SessionBegan(client string) func(history.Update, pglogrepl.LSN) {
	r := o.w.find(client)
	session := o.w.check.Session(client)
	return func(u history.Update, end pglogrepl.LSN) {
		delay := o.w.plan.Set.ConfirmDelay
		if r == nil || r.stopping.Load() || r.pump.Status().State == pump.StateDraining || time.Since(time.Unix(0, r.thawed.Load())) < time.Second {
			delay = 0 // what was frozen goes by a clock that ran on
		}
		session.Confirmed(u, end, delay)
		if u.Flush > 0 {
			o.w.spring(&o.w.onMark)
		}
	}
}

func (o observer) Stored(m jsmodel.Message) {
	o.w.check.Store(m.ID, m.Position)
	if row, ok := o.w.row(m.ID); ok && m.Position != "" && (m.Subject != "outbox."+row.Topic || m.Body != row.Payload ||
		m.Aggregate != row.Aggregate || m.Sequence != row.Sequence || m.Trace != trace(row)) {
		o.w.check.Fail(history.SameMessage, "event %s is stored as %+v, its row is %+v", m.ID, m, row)
	}
	o.w.spring(&o.w.onStore)
}

func (o observer) Knows(client string) { o.w.check.Knows(client) }

// Topics of events that no stream takes: the relay knows of the one before it sends, of the other when it is refused.
const (
	poisonTopic  = "a topic with blanks"
	refusedTopic = "huge"
)

// eventID is the id of the nth event. A relay holds UUIDs otherwise than other ids, so there are both.
func eventID(n int) string {
	if n%2 == 0 {
		return fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	}
	return fmt.Sprintf("e%05d", n)
}

// trace is the header of that name that a row brings.
func trace(row pgmodel.Row) string {
	if row.Headers == "" {
		return ""
	}
	return "t" + row.Sequence
}

// row returns the row of an id.
func (w *world) row(id string) (pgmodel.Row, bool) {
	w.trapMu.Lock()
	defer w.trapMu.Unlock()
	row, ok := w.rows[id]
	return row, ok
}

func (o observer) Truncated(last int, crash bool) { o.w.check.Truncate(last, crash) }

// find returns the relay of that name.
func (w *world) find(name string) *relay {
	w.trapMu.Lock()
	defer w.trapMu.Unlock()
	for _, r := range w.all {
		if r.proc.Name == name {
			return r
		}
	}
	return nil
}

// logHandler writes a relay's log to the history.
type logHandler struct {
	log   *history.Log
	who   string
	muted *atomic.Bool
}

func (h logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	if !h.muted.Load() {
		h.log.Add(h.who, "%v", line{r})
	}
	return nil
}

func (h logHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h logHandler) WithGroup(string) slog.Handler      { return h }

// line formats a record when it is read.
type line struct{ r slog.Record }

func (l line) String() string {
	text := l.r.Level.String() + " " + l.r.Message
	l.r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	return text
}
