package replication

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Pace of status updates. They are cheap but not free: each costs both sides a system call.
const (
	settledPace = 100 * time.Millisecond // while everything that was read is stored
	movingPace  = time.Second            // while the confirmed LSN moves behind events that wait
)

// status is what the server was told.
type status struct {
	confirmed pglogrepl.LSN // never goes back (I2)
	sent      pglogrepl.LSN // the last one that was written to the connection
	sentAt    time.Time
	requested bool // the server has asked
}

// Confirm tells the session which LSN may be confirmed, to be sent when Report says so. A value below an earlier one is
// ignored.
func (s *Session) Confirm(low pglogrepl.LSN) { s.status.confirmed = max(s.status.confirmed, low) }

// Confirmed returns the LSN that was last given to the server, 0 if none was.
func (s *Session) Confirmed() pglogrepl.LSN { return s.status.sent }

// Report sends a status update if one is due, and returns when the next one is due if nothing happens until then. settled
// says that nothing waits to be stored. An error ends the session.
func (s *Session) Report(now time.Time, settled bool) (time.Time, error) {
	if due := s.reportDue(settled); now.Before(due) {
		return due, nil
	}
	if err := s.Flush(now); err != nil {
		return time.Time{}, err
	}
	return s.reportDue(settled), nil
}

func (s *Session) reportDue(settled bool) time.Time {
	switch st := &s.status; {
	case st.requested:
		return time.Time{}
	case st.confirmed > st.sent && settled:
		return st.sentAt.Add(settledPace)
	case st.confirmed > st.sent:
		return st.sentAt.Add(min(movingPace, s.timeout/3))
	}
	return s.status.sentAt.Add(s.timeout / 3)
}

// Flush sends a status update now. Write, Flush and Apply always carry the same value, the confirmed LSN (I2): the server
// takes a zero Flush for "unknown" and a Write beyond Flush for a promise.
func (s *Session) Flush(now time.Time) error {
	// A server that we answer on our own has no reason to send anything, and then a dead one looks like an idle one. So an
	// update that is not an answer asks for one, unless the confirmed LSN moves and the server has spoken lately.
	ask := byte(1)
	if s.status.requested || s.status.confirmed > s.status.sent && now.Sub(s.lastRead) < s.timeout/3 {
		ask = 0
	}
	var b [1 + 8 + 8 + 8 + 8 + 1]byte
	b[0] = pglogrepl.StandbyStatusUpdateByteID
	for i := range 3 {
		binary.BigEndian.PutUint64(b[1+8*i:], uint64(s.status.confirmed))
	}
	binary.BigEndian.PutUint64(b[25:], uint64(now.UnixMicro()-946684800*1_000_000))
	b[33] = ask

	if err := s.net.SetWriteDeadline(now.Add(s.timeout / 3)); err != nil {
		s.broken = true
		return fmt.Errorf("send status update: %w", err)
	}
	s.front.Send(&pgproto3.CopyData{Data: b[:]})
	if err := s.front.Flush(); err != nil {
		s.broken = true
		return fmt.Errorf("send status update: %w", err)
	}
	s.status.sent, s.status.sentAt, s.status.requested = s.status.confirmed, now, false
	return nil
}

// stopDetector recognises a server that shuts down while the confirmation it waits for cannot be given. A walsender in
// that state asks again after each answer, one request a round trip, for ever; an idle one asks twice a session timeout.
type stopDetector struct {
	confirmed pglogrepl.LSN
	since     time.Time // of the first request in the present count
	count     int
}

const (
	stopRequests = 10
	stopWindow   = 5 * time.Second
)

// requested counts a request for an answer and reports whether the server is stopping.
func (d *stopDetector) requested(walEnd, confirmed pglogrepl.LSN, now time.Time) bool {
	if walEnd <= confirmed || confirmed != d.confirmed || now.Sub(d.since) > stopWindow {
		*d = stopDetector{confirmed: confirmed, since: now}
	}
	if walEnd > confirmed {
		d.count++
	}
	return d.count >= stopRequests
}
