package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
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
	ConfirmedBack  int            `json:"confirmed_back"`  // times that the slot fell back without a reason
	Faults         map[string]int `json:"faults"`
	LongestStall   float64        `json:"longest_stall_seconds"`
	RelayRSS       float64        `json:"relay_rss_mib"` // the most that a relay had at the end

	again bool     // the stream was purged: what is stored twice is nobody's fault
	wrong []string // the first findings, for a person
	logs  []string
}

const shown = 10

func (r *result) find(counter *int, format string, args ...any) {
	*counter++
	if len(r.wrong) < shown {
		r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
	}
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
			r.find(&r.Phantoms, "phantom: %s at sequence %d never committed", m.id, m.seq)
			continue
		case twice && r.again:
			r.Doubled++
			continue
		case twice:
			r.find(&r.Doubled, "doubled: %s at sequence %d is at %d already", m.id, m.seq, first)
			continue
		case at < last && reported[record[last].id]:
			r.Reordered++ // as a foreign writer can bring about
		case at < last:
			r.find(&r.Reordered, "reordered: %s (commit %s) at sequence %d is behind %s (commit %s)", m.id, record[at].end, m.seq, record[last].id, record[last].end)
		default:
			last = at
		}
		seen[m.id] = m.seq
	}
	for _, c := range record {
		if _, stored := seen[c.id]; !stored {
			r.find(&r.Lost, "lost: %s (commit %s)", c.id, c.end)
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
			r.find(&r.ConfirmedEarly, "confirmed early: %s, while the stream ended at %d and needed %d", s.confirmed, s.last, needed[n])
		}
	}
}

// verdict is an error unless everything is as promised.
func (r *result) verdict() error {
	if len(r.wrong) == 0 {
		return nil
	}
	return errors.New("NOT as promised:\n  " + strings.Join(r.wrong, "\n  ") + "\nrelays' logs: " + strings.Join(r.logs, " "))
}

func (r *result) tell(w io.Writer) {
	total := 0
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		total += r.Faults[name]
		_, _ = fmt.Fprintf(w, "%5d  %s\n", r.Faults[name], name)
	}
	_, _ = fmt.Fprintf(w, "\nseed %d, %.0f s, %d faults: committed %d, stored %d, lost %d, doubled %d, reordered %d, phantoms %d, confirmed early %d, back %d, foreign %d\n"+
		"longest time in which something waited and nothing was stored: %.1f s; relays' memory at the end: %.0f MiB\n", r.Seed, r.Seconds, total, r.Committed, r.Stored,
		r.Lost, r.Doubled, r.Reordered, r.Phantoms, r.ConfirmedEarly, r.ConfirmedBack, r.Foreign, r.LongestStall, r.RelayRSS)
}

// record reads the order of the commits from the slot that no relay knows.
func (w *world) record(ctx context.Context) ([]commit, error) {
	conn, err := pgx.Connect(ctx, w.url())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // read only
	rows, err := conn.Query(ctx, "SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)", recordName, recordName)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []commit
	begun, at := 0, time.Time{}
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			return nil, err
		}
		m, err := pglogrepl.Parse(data)
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *pglogrepl.BeginMessage:
			at = m.CommitTime
		case *pglogrepl.InsertMessage:
			all = append(all, commit{at: at, id: string(m.Tuple.Columns[0].Data)}) // id is the first column
		case *pglogrepl.CommitMessage:
			for ; begun < len(all); begun++ {
				all[begun].end = m.TransactionEndLSN
			}
		}
	}
	return all, rows.Err()
}

// watcher takes samples until it is stopped.
type watcher struct {
	samples []sample
	all     sync.WaitGroup
	cancel  context.CancelFunc
}

func (w *world) watch(ctx context.Context) *watcher {
	ctx, cancel := context.WithCancel(ctx)
	x := &watcher{cancel: cancel}
	x.all.Go(func() {
		for sleep(ctx, 100*time.Millisecond) {
			forgets := w.forgets.Load()
			confirmed, _, err := w.confirmed(ctx)
			if err != nil {
				continue // PostgreSQL is away
			}
			_ = w.withStream(ctx, func(_ context.Context, _ jetstream.JetStream, stream jetstream.Stream) error { // or NATS is
				x.samples = append(x.samples, sample{confirmed, stream.CachedInfo().State.LastSeq, forgets})
				return nil
			})
		}
	})
	return x
}

func (x *watcher) stop() []sample {
	x.cancel()
	x.all.Wait()
	return x.samples
}
