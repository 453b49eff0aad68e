package pgmodel

import (
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// stream sends what the slot has, from a confirmed LSN, until the session ends.
func (se *session) stream(from pglogrepl.LSN) {
	w := &sender{session: se, sent: from, shape: -1}
	orderly, cut := w.run()
	if cut { // in the middle of a message nothing can be said any more
		s := se.server
		s.mu.Lock()
		se.fatal = nil
		s.mu.Unlock()
	}
	if !orderly {
		_ = se.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	}
}

// sender is a walsender.
type sender struct {
	*session
	sent  pglogrepl.LSN // up to there everything is decoded
	next  int           // index of the transaction to send
	shape int           // of the outbox table as announced, -1 if it was not
	other bool          // the other table was announced

	askedAt time.Time // when a keepalive between messages last asked for an answer
}

// run returns orderly when the client has ended the stream, and cut when a write failed.
func (w *sender) run() (orderly, cut bool) {
	s := w.server
	s.mu.Lock()
	for w.next < len(s.wal) && s.wal[w.next].Commit < w.sent {
		w.next++
	}
	s.mu.Unlock()
	for {
		s.mu.Lock()
		tx, message, changed, wait, end := w.look()
		s.mu.Unlock()
		switch {
		case end != nil:
			return *end, false
		case message != nil:
			if !w.send(message) {
				return false, true
			}
		case tx != nil:
			if !w.transaction(tx) {
				return false, true
			}
		default:
			timer := time.NewTimer(wait)
			select {
			case <-changed:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// look decides what comes next. The server's lock is held.
func (w *sender) look() (tx *Tx, message pgproto3.BackendMessage, changed <-chan struct{}, wait time.Duration, end *bool) {
	s, now := w.server, time.Now()
	over := func(orderly bool) (*Tx, pgproto3.BackendMessage, <-chan struct{}, time.Duration, *bool) {
		return nil, nil, nil, 0, &orderly
	}
	if w.dead {
		return over(false)
	}
	if w.done {
		return over(true)
	}
	silent := now.Sub(w.heard)
	switch {
	case w.timeout > 0 && silent >= w.timeout:
		w.kill("", "timeout")
		return over(false)
	case w.reply:
		w.reply = false
		return nil, keepalive(w.sent, now, false), nil, 0, nil
	case w.timeout > 0 && silent >= w.timeout/2 && !w.asked:
		w.asked = true
		return nil, keepalive(w.sent, now, true), nil, 0, nil
	case w.next < len(s.wal):
		return s.wal[w.next], nil, nil, 0, nil
	case s.state == stopping && w.flushed >= w.sent && w.sent >= w.lastEnd():
		s.log.Add("postgres", "session %d of %s ends: everything is confirmed", w.pid, w.client)
		w.dead, w.fatal = true, goodbye
		return over(false)
	case s.state == stopping && !w.asked && now.Sub(w.askedAt) < time.Millisecond:
		return nil, nil, s.changed, time.Millisecond, nil // a round trip takes its time
	case s.state == stopping && !w.asked:
		w.asked, w.askedAt = true, now
		return nil, keepalive(w.sent, now, true), nil, 0, nil
	case w.sent < s.end:
		w.sent = s.end
		if !s.cfg.Polite && s.rng.IntN(3) == 0 {
			return nil, keepalive(w.sent, now, s.rng.IntN(4) == 0 && w.mayAsk(now)), nil, 0, nil
		}
	}
	wait = time.Hour
	if w.timeout > 0 {
		at := w.timeout
		if !w.asked {
			at /= 2
		}
		wait = max(at-silent, time.Microsecond)
	}
	return nil, nil, s.changed, wait, nil
}

var goodbye, _ = (&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")}).Encode(nil)

// mayAsk says whether a keepalive may ask for an answer: a server asks again only when it was answered, and long after.
func (w *sender) mayAsk(now time.Time) bool {
	if w.asked || now.Sub(w.askedAt) < time.Second {
		return false
	}
	w.asked, w.askedAt = true, now
	return true
}

func (w *sender) lastEnd() pglogrepl.LSN {
	if n := len(w.server.wal); n > 0 {
		return w.server.wal[n-1].End
	}
	return 0
}

// transaction sends a transaction. It returns false when the session has ended in the middle.
func (w *sender) transaction(tx *Tx) bool {
	w.next++
	defer func() { w.sent = max(w.sent, tx.End) }()
	if len(tx.Rows) == 0 && tx.Others == 0 && w.server.cfg.Major >= 15 {
		return true
	}
	if !w.data(tx.Commit, begin(tx)) {
		return false
	}
	if tx.DDL > 0 { // it makes the server forget what it has announced, before and after
		if w.server.cfg.Major < 18 {
			w.shape = -1
		}
		defer func() { w.shape = -1 }()
	}
	others := tx.Others
	for i, row := range tx.Rows {
		shape := tx.Shape
		if tx.DDL > 0 && i >= tx.DDL {
			shape = (shape + 1) % unfit
		}
		if shape != w.shape {
			w.shape = shape
			if !w.data(0, relation(OutboxOID, "outbox", shapes[shape])) {
				return false
			}
		}
		if !w.data(tx.Commit-1, insert(OutboxOID, row.values(shapes[shape])...)) {
			return false
		}
		if others > 0 {
			others--
			if !w.another(tx) {
				return false
			}
		}
	}
	return w.data(tx.End, commit(tx))
}

// another sends a row of a table that is no outbox.
func (w *sender) another(tx *Tx) bool {
	if !w.other {
		w.other = true
		if !w.data(0, relation(otherOID, "customers", Shape{"id", "name"})) {
			return false
		}
	}
	return w.data(tx.Commit-1, insert(otherOID, "1", "somebody"))
}

// data sends one message of a transaction, and between two of them what a walsender does there.
func (w *sender) data(at pglogrepl.LSN, message []byte) bool {
	s := w.server
	s.mu.Lock()
	now := time.Now()
	var b []pgproto3.BackendMessage
	if w.reply || s.rng.Float64() < s.cfg.Chatter {
		at := w.sent
		if s.cfg.Ahead && message[0] != 'B' {
			at = s.end // whether servers do so is not known, and a relay does not rely on it
		}
		b = append(b, keepalive(at, now, s.rng.IntN(2) == 0 && w.mayAsk(now)))
		w.reply = false
	}
	var pause time.Duration
	if s.cfg.Pace > 0 {
		pause = time.Duration(s.rng.Int64N(int64(s.cfg.Pace)))
	}
	dead, end := w.dead, s.end
	s.mu.Unlock()
	if dead {
		return true // run says why
	}
	if pause > 0 {
		time.Sleep(pause) //nolint:forbidigo // simulated
	}
	return w.send(append(b, walData(at, end, now, message))...)
}
