package pgmodel

import (
	"time"

	"github.com/seed-1cfd9858/relay/test/sim/simnet"
)

// Crash ends all sessions and forgets confirmations since the last checkpoint. The server is down until Start.
func (s *Server) Crash() {
	s.mu.Lock()
	s.confirmed = s.durable
	s.goDown()
	s.mu.Unlock()
	s.Proc.CutAll(s.chance(2))
}

func (s *Server) goDown() {
	s.state, s.holder = down, nil
	for _, session := range s.sessions {
		session.dead = true
	}
	s.sessions = nil
	s.Proc.SetDials(simnet.Refuse)
	s.signal()
}

// Start brings the server up again.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = up
	s.Proc.SetDials(simnet.Accept)
	s.signal()
}

// Stop begins a shutdown, which waits for the client's confirmations: Stopping tells how long.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == up {
		s.state = stopping
		s.signal()
		s.stopIfIdle()
	}
}

func (s *Server) stopIfIdle() {
	if s.state == stopping && s.holder == nil {
		s.checkpoint()
		s.confirmed = s.durable
		s.log.Add("postgres", "stopped")
		s.goDown()
	}
}

// Stopping reports whether a shutdown is under way.
func (s *Server) Stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == stopping
}

// Failover loses the last transactions, at most n of them: a standby that had not got them takes over, with the slot as it was
// synchronised last. The new timeline uses their LSNs again.
func (s *Server) Failover(n int) {
	s.mu.Lock()
	keep := max(len(s.wal)-n, 0)
	for keep < len(s.wal) && s.wal[keep].End <= s.durable {
		keep++ // a synchronised slot never stands before its standby's WAL
	}
	cut := s.durable
	if keep > 0 {
		cut = max(cut, s.wal[keep-1].End)
	}
	s.log.Add("postgres", "failover: %d transactions are lost, the WAL ends at %s, the slot is at %s", len(s.wal)-keep, cut, s.durable)
	s.wal, s.end, s.confirmed = s.wal[:keep], cut, s.durable
	s.obs.Forgotten(cut)
	s.goDown()
	s.mu.Unlock()
	s.Proc.CutAll(true)
}

// LoseSlot invalidates the slot, or removes it, and ends the session that holds it.
func (s *Server) LoseSlot(remove bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost, s.missing = true, remove
	if s.holder != nil {
		s.holder.kill("55000", "can no longer get changes from this replication slot")
	}
	s.signal()
}

// DropColumn takes a column away from the outbox table that no relay can do without.
func (s *Server) DropColumn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shape = unfit
}

// EndSession ends the session that holds the slot, as an administrator does, or a lost connection.
func (s *Server) EndSession(code string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == nil {
		return false
	}
	s.holder.kill(code, "terminating connection due to administrator command")
	s.signal()
	return true
}

// Occupy lets somebody else hold the slot for a time.
func (s *Server) Occupy(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != nil || s.state != up {
		return false
	}
	squatter := &session{server: s, pid: 1, client: "somebody"}
	s.holder = squatter
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.holder == squatter {
			s.holder = nil
			s.stopIfIdle()
			s.signal()
		}
	})
	return true
}

// Heal ends every fault but a lost slot.
func (s *Server) Heal() {
	s.mu.Lock()
	if s.holder != nil && s.holder.conn == nil {
		s.holder = nil
	}
	s.mu.Unlock()
	s.Proc.Thaw()
	s.Start()
}
