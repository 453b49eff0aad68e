package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/nats-io/nats.go/jetstream"
)

// commit is one event that committed, in the order of the commits.
type commit struct {
	id  string
	end pglogrepl.LSN // of its transaction: confirmed beyond it means that PostgreSQL may forget it
	at  time.Time     // by PostgreSQL's clock
}

// message is one message of the stream.
type message struct {
	seq     uint64
	id      string
	at      time.Time // by JetStream's clock, before the ack
	foreign bool      // published by no relay
}

// sample is what was confirmed at one moment, and how far the stream reached after that.
type sample struct {
	confirmed pglogrepl.LSN
	last      uint64
	forgets   int64 // times so far that PostgreSQL may have forgotten confirmations
	at        time.Time
}

// result is how it ended. Its keys are what --json prints.
type result struct {
	Seed           uint64         `json:"seed"`
	Seconds        float64        `json:"seconds"`
	Committed      int            `json:"committed"`
	Stored         int            `json:"stored"`
	Lost           int            `json:"lost"`            // committed, and not in the stream
	Doubled        int            `json:"doubled"`         // messages of an event that is in the stream before them
	Reordered      int            `json:"reordered"`       // messages behind one that committed later
	Phantoms       int            `json:"phantoms"`        // messages of no committed event
	Foreign        int            `json:"foreign"`         // messages that chaos itself has published
	ConfirmedEarly int            `json:"confirmed_early"` // times that an LSN was confirmed before an event below it was stored
	Holes          int            `json:"holes"`           // places where the stream was shorter than chaos' copy of it
	Crashes        int            `json:"crashes"`         // things that no relay may ever say
	ConfirmedBack  int            `json:"confirmed_back"`  // times that the slot fell back without a reason
	Failures       int            `json:"failures"`        // things that did not come about in time, and relays that ended by themselves
	Faults         map[string]int `json:"faults"`
	LongestStall   float64        `json:"longest_stall_seconds"`
	RSSBegin       float64        `json:"relay_rss_begin_mib"` // the most that a relay had after the first seconds
	RSSPeak        float64        `json:"relay_rss_peak_mib"`  // at any time
	RelayRSS       float64        `json:"relay_rss_mib"`       // at the end

	again  bool      // the stream was purged: what is stored twice is nobody's fault
	wrong  []finding // the first ones, for a person
	logs   []string
	began  time.Time
	struck []struck
}

// balance compares what is stored with what was committed. An event that came too late is excused if a relay has reported
// the one that was there before it.
func (r *result) balance(record []commit, stream []message, reported map[string]bool) {
	r.Committed, r.Stored = len(record), len(stream)
	place := make(map[string]int, len(record))
	for i, c := range record {
		place[c.id] = i
	}
	seen := make(map[string]uint64, len(stream))
	last := -1
	for _, m := range stream {
		at, known := place[m.id]
		first, twice := seen[m.id]
		switch {
		case m.foreign:
			r.Foreign++
			continue
		case !known:
			r.find(&r.Phantoms, m.at, "phantom: %s at sequence %d never committed", m.id, m.seq)
			continue
		case twice && r.again:
			r.Doubled++
			continue
		case twice:
			r.find(&r.Doubled, m.at, "doubled: %s at sequence %d is at %d already", m.id, m.seq, first)
			continue
		case at < last && reported[record[last].id]:
			r.Reordered++ // as a foreign writer can bring about
		case at < last:
			r.find(&r.Reordered, m.at, "reordered: %s (commit %s) at sequence %d is behind %s (commit %s)", m.id, record[at].end, m.seq, record[last].id, record[last].end)
		default:
			last = at
		}
		seen[m.id] = m.seq
	}
	for _, c := range record {
		if _, stored := seen[c.id]; !stored {
			r.find(&r.Lost, c.at, "lost: %s (commit %s)", c.id, c.end)
		}
	}
}

// early looks for confirmations that came before the events below them were stored.
func (r *result) early(record []commit, stream []message, samples []sample) {
	stored := make(map[string]uint64, len(stream))
	for _, m := range slices.Backward(stream) {
		stored[m.id] = m.seq
	}
	// needed[i] is the sequence that the stream must have reached before the first i events may be confirmed.
	needed := make([]uint64, len(record)+1)
	for i, c := range record {
		seq, ok := stored[c.id]
		if !ok {
			seq = ^uint64(0)
		}
		needed[i+1] = max(needed[i], seq)
	}
	for _, s := range samples {
		n, _ := slices.BinarySearchFunc(record, s.confirmed, func(c commit, lsn pglogrepl.LSN) int {
			if c.end <= lsn {
				return -1
			}
			return 1
		})
		if needed[n] > s.last {
			r.find(&r.ConfirmedEarly, s.at, "confirmed early: %s, while the stream ended at %d and needed %d", s.confirmed, s.last, needed[n])
		}
	}
}

func (r *result) tell(w io.Writer) {
	total := 0
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		total += r.Faults[name]
		_, _ = fmt.Fprintf(w, "%5d  %s\n", r.Faults[name], name)
	}
	_, _ = fmt.Fprintf(w, "\nseed %d, %.0f s, %d faults: committed %d, stored %d, lost %d, doubled %d, reordered %d, phantoms %d, confirmed early %d, back %d, foreign %d\n"+
		"longest time in which something waited and nothing was stored: %.1f s; relays' memory in the beginning, at most, at the end: %.0f, %.0f, %.0f MiB\n", r.Seed, r.Seconds, total, r.Committed, r.Stored,
		r.Lost, r.Doubled, r.Reordered, r.Phantoms, r.ConfirmedEarly, r.ConfirmedBack, r.Foreign, r.LongestStall, r.RSSBegin, r.RSSPeak, r.RelayRSS)
}

// watcher takes samples until it is stopped.
type watcher struct {
	samples []sample
	begin   float64 // MiB of the larger relay when memory was looked at first
	peak    float64
	all     sync.WaitGroup
	cancel  context.CancelFunc
}

func (w *world) watch(ctx context.Context) *watcher {
	ctx, cancel := context.WithCancel(ctx)
	x := &watcher{cancel: cancel}
	x.all.Go(func() {
		for sleep(ctx, 5*time.Second) {
			now := w.memory()
			x.peak = max(x.peak, now)
			if x.begin == 0 {
				x.begin = now
			}
		}
	})
	x.all.Go(func() {
		for sleep(ctx, 100*time.Millisecond) {
			forgets := w.forgets.Load()
			confirmed, _, err := w.confirmed(ctx)
			if err != nil {
				continue // PostgreSQL is away
			}
			_ = w.withStream(ctx, func(_ context.Context, _ jetstream.JetStream, stream jetstream.Stream) error { // or NATS is
				x.samples = append(x.samples, sample{confirmed, stream.CachedInfo().State.LastSeq, forgets, time.Now()})
				return nil
			})
		}
	})
	return x
}

func (x *watcher) stop() *watcher {
	x.cancel()
	x.all.Wait()
	return x
}

// memory is what the larger relay has now, in MiB.
func (w *world) memory() (most float64) {
	for _, m := range w.relays {
		if usage, err := m.proc().Usage(); err == nil {
			most = max(most, float64(usage.RSSBytes)/(1<<20))
		}
	}
	return most
}
