package main

import (
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// confirmation is a status update of a relay as it passed its proxy.
type confirmation struct {
	at    time.Time
	flush pglogrepl.LSN
	from  string
}

// onPg sets the hook of a fault on the member's way to PostgreSQL; nil takes it away. What the relay confirms is noted all
// the while: the confirmed LSN that PostgreSQL shows now and then may have been wrong in between.
func (m *member) onPg(hook func(sandbox.PgMessage) sandbox.Action) {
	m.pgProxy.OnPg(func(msg sandbox.PgMessage) sandbox.Action {
		if msg.IsStatusUpdate() {
			m.noteConfirmation(msg.Flush)
		}
		if hook == nil {
			return sandbox.Forward
		}
		return hook(msg)
	})
}

func (m *member) noteConfirmation(flush pglogrepl.LSN) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.confirmed); n == 0 || m.confirmed[n-1].flush != flush {
		m.confirmed = append(m.confirmed, confirmation{at: time.Now(), flush: flush, from: m.name})
	}
}

func (m *member) confirmations() []confirmation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.confirmed
}

// earlyOnWire looks for status updates that had left a relay before the events below them were stored. JetStream's times are
// those at which it took the messages, before it acked them.
func (r *result) earlyOnWire(record []commit, stream []message, confirmations []confirmation) {
	stored := make(map[string]time.Time, len(stream))
	for _, m := range slices.Backward(stream) {
		stored[m.id] = m.at
	}
	// full[i] is when the first i events were all stored; zero behind one that never was.
	full, never := make([]time.Time, len(record)+1), len(record)+1
	for i, c := range record {
		at, ok := stored[c.id]
		if !ok && never > len(record) {
			never = i + 1
		}
		full[i+1] = full[i]
		if at.After(full[i]) {
			full[i+1] = at
		}
	}
	for _, c := range confirmations {
		n, _ := slices.BinarySearchFunc(record, c.flush, func(c commit, lsn pglogrepl.LSN) int {
			if c.end <= lsn {
				return -1
			}
			return 1
		})
		if n >= never || full[n].After(c.at) {
			r.find(&r.ConfirmedEarly, c.at, "confirmed early: %s confirmed %s at %s, while an event below it was not stored", c.from, c.flush, c.at.Format(time.StampMicro))
		}
	}
}

// backwards looks for a slot that fell back although PostgreSQL was not stopped in between.
func (r *result) backwards(samples []sample) {
	for i := 1; i < len(samples); i++ {
		if before, now := samples[i-1], samples[i]; now.confirmed < before.confirmed && now.forgets == before.forgets {
			r.find(&r.ConfirmedBack, now.at, "confirmed back: the slot fell from %s to %s", before.confirmed, now.confirmed)
		}
	}
}

// stall is the longest time in which an event was committed, not stored, and nothing was stored, and when it ended. What was
// never stored waits until the run is over.
func stall(record []commit, stream []message, over time.Time) (longest time.Duration, end time.Time) {
	type moment struct {
		at time.Time
		by int // events that wait more
	}
	committed := make(map[string]time.Time, len(record))
	for _, c := range record {
		committed[c.id] = c.at
	}
	var moments []moment
	for _, m := range stream {
		if at, ok := committed[m.id]; ok {
			delete(committed, m.id)
			moments = append(moments, moment{at, 1}, moment{m.at, -1})
		}
	}
	for _, at := range committed {
		moments = append(moments, moment{at, 1})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return a.at.Compare(b.at) })
	waiting, since := 0, time.Time{}
	for _, m := range moments {
		if waiting > 0 && m.by < 0 {
			if d := m.at.Sub(since); d > longest {
				longest, end = d, m.at
			}
		}
		if m.by < 0 || waiting == 0 {
			since = m.at
		}
		waiting += m.by
	}
	if d := over.Sub(since); waiting > 0 && d > longest {
		longest, end = d, over
	}
	return longest, end
}
