package jsmodel

import (
	"time"

	"github.com/seed-1cfd9858/relay/test/sim/simnet"
)

// Down kills the server; what it has acked survives, what a quorum has not seen does not. Start brings it up again.
func (s *Server) Down(lose bool) {
	s.Proc.SetDials(simnet.Refuse)
	s.Proc.CutAll(lose)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newTerm()
	s.consumers = map[string]*consumer{}
}

// PowerCut kills the server and loses its last n messages.
func (s *Server) PowerCut(n int) {
	s.Down(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.truncate(max(len(s.messages)-n, 0), true)
}

func (s *Server) truncate(last int, crash bool) {
	s.log.Add("nats", "the stream ends at %d now, not %d", last, len(s.messages))
	s.messages = s.messages[:last]
	s.obs.Truncated(last, crash)
	s.ids = map[string]stored{}
	for _, m := range s.messages { // as a start does
		if id := m.head("Nats-Msg-Id"); id != "" {
			s.ids[id] = m
		}
	}
}

// Start brings the server up again.
func (s *Server) Start() { s.Proc.SetDials(simnet.Accept) }

// newTerm ends the proposals that are under way: some were seen by a quorum all the same, the rest is gone.
func (s *Server) newTerm() {
	s.term++
	if n := len(s.pending); n > 0 {
		keep := s.rng.IntN(n + 1)
		for _, p := range s.pending[:keep] {
			s.store(p.message)
		}
		s.log.Add("nats", "%d proposals are gone", n-keep)
	}
	s.pending = nil
}

// Leaderless leaves the stream without a leader for a time.
func (s *Server) Leaderless(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = false
	s.newTerm()
	term := s.term
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.term == term {
			s.leader = true
		}
	})
}

// Delete removes the stream. Create makes it again, empty.
func (s *Server) Delete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term++
	s.exists, s.pending = false, nil
	s.consumers = map[string]*consumer{}
	s.truncate(0, false)
}

// Create makes the stream if it is not there, and elects a leader.
func (s *Server) Create() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.exists {
		s.exists, s.created = true, time.Now()
	}
	s.leader = true
}

// Foreign stores a message of somebody who is no relay, with an id if one is given. It reports false if it cannot.
func (s *Server) Foreign(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.exists || !s.leader || len(s.pending) > 0 {
		return false
	}
	m := message{subject: s.cfg.Prefix + "foreign", data: []byte("{}")}
	if id != "" {
		m.header = []byte("NATS/1.0\r\nNats-Msg-Id: " + id + "\r\n\r\n")
	}
	s.store(m)
	return true
}

// Heal ends every fault.
func (s *Server) Heal() {
	s.mu.Lock()
	s.faults = Faults{}
	s.mu.Unlock()
	s.Create()
	s.Start()
	s.Proc.Thaw()
}
