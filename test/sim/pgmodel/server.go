// Package pgmodel is a model of PostgreSQL as a relay meets it: one cluster with one outbox table, one publication and one
// logical slot, which speaks the replication protocol over connections of simnet.
package pgmodel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/slot"
	"github.com/seed-1cfd9858/relay/test/sim/history"
	"github.com/seed-1cfd9858/relay/test/sim/simnet"
)

// System is the cluster's system identifier.
const System = "7412345678901234567"

// Row is one row of the outbox.
type Row struct {
	ID, Topic, Payload, Aggregate, Sequence, Headers string
}

// Tx is a committed transaction.
type Tx struct {
	Rows   []Row
	Others int // rows of another table between those of the outbox
	Shape  int // version of the outbox table at its first row
	DDL    int // before which row the next version begins; 0: none

	// The server fills these.
	XID         uint32
	Commit, End pglogrepl.LSN
	At          time.Time
}

// Config says what a server is like.
type Config struct {
	Slot        slot.Config
	Polite      bool          // only what is asked of it: no DDL and no keepalives by chance
	Major       int           // version
	Chatter     float64       // chance of a keepalive between two messages
	Ahead       bool          // keepalives inside a transaction tell of WAL beyond its end
	Pace        time.Duration // at most so long between two messages
	ReleaseTime time.Duration // how long the slot of a lost session stays taken
}

// Observer is told what happens, with the server's lock held.
type Observer interface {
	Committed(tx *Tx)
	Forgotten(after pglogrepl.LSN)
	// SessionBegan returns what takes the session's status updates. It is called before the first.
	SessionBegan(client string) func(u history.Update, end pglogrepl.LSN)
}

// Server is the model. Its methods are safe for concurrent use.
type Server struct {
	Proc *simnet.Process
	cfg  Config
	obs  Observer
	log  *history.Log

	mu       sync.Mutex
	rng      *rand.Rand
	changed  chan struct{}
	wal      []*Tx // of this timeline, in commit order
	end      pglogrepl.LSN
	xid      uint32
	shape    int
	state    state
	sessions []*session
	nextPID  uint32

	missing, lost bool
	confirmed     pglogrepl.LSN
	durable       pglogrepl.LSN // what a crash leaves of confirmed
	holder        *session
}

type state uint8

const (
	up state = iota
	stopping
	down
)

// New returns a running server with a fresh slot.
func New(cfg Config, obs Observer, log *history.Log, rng *rand.Rand) *Server {
	const first = pglogrepl.LSN(0x1_5000_0000)
	s := &Server{cfg: cfg, obs: obs, log: log, rng: rng, changed: make(chan struct{}), end: first, confirmed: first, durable: first, nextPID: 1000}
	s.Proc = simnet.NewProcess("postgres", s.serve)
	return s
}

func (s *Server) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Commit commits a transaction. It reports false while the server is not up.
func (s *Server) Commit(tx *Tx) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != up {
		return false
	}
	s.xid++
	tx.XID, tx.At = s.xid, time.Now()
	tx.Shape = s.shape
	if len(tx.Rows) > 1 && !s.cfg.Polite && s.shape != unfit && s.rng.IntN(8) == 0 {
		tx.DDL = 1 + s.rng.IntN(len(tx.Rows)-1)
	}
	if tx.DDL > 0 {
		s.shape = (s.shape + 1) % unfit
	}
	tx.Commit = s.end + pglogrepl.LSN(8*(1+s.rng.IntN(40)*(1+len(tx.Rows))))
	tx.End = tx.Commit + pglogrepl.LSN(8*(1+s.rng.IntN(8)))
	s.end = tx.End
	s.wal = append(s.wal, tx)
	s.obs.Committed(tx)
	s.signal()
	return true
}

// Neighbours writes WAL that has nothing for the slot.
func (s *Server) Neighbours() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == up {
		s.end += pglogrepl.LSN(8 * (1 + s.rng.IntN(2000)))
		s.signal()
	}
}

// Checkpoint makes what is confirmed durable, or not.
func (s *Server) Checkpoint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkpoint()
}

// checkpoint writes the slot if it is known to have changed: before version 17 a confirmation alone did not count as that,
// not even at a shutdown.
func (s *Server) checkpoint() {
	if s.cfg.Major >= 17 || s.cfg.Polite || s.rng.IntN(2) == 0 {
		s.durable = s.confirmed
	}
}

// Confirmed returns the slot's confirmed LSN.
func (s *Server) Confirmed() pglogrepl.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed
}

// WAL returns how many transactions this timeline has.
func (s *Server) WAL() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.wal)
}

// Up reports whether the server is neither stopping nor down.
func (s *Server) Up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == up
}

func (s *Server) chance(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n) == 0
}

// errNoAnswer is that of a look at a catalogue that cannot be reached.
var errNoAnswer = errors.New("the server cannot be reached")

// Inspect is what a process sees in the catalogue.
func (s *Server) Inspect(ctx context.Context, p *simnet.Process) (slot.State, error) {
	if err := p.Gate(); err != nil {
		return slot.State{}, err
	}
	if err := s.Proc.GateContext(ctx); err != nil {
		return slot.State{}, err
	}
	if !s.pause(ctx, time.Millisecond) {
		return slot.State{}, fmt.Errorf("look at the catalogue: %w", context.Cause(ctx))
	}
	if err := p.Gate(); err != nil {
		return slot.State{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == stopping {
		return slot.State{}, pgError("57P03", "the database system is shutting down")
	}
	if s.state == down {
		return slot.State{}, errNoAnswer
	}
	return s.catalogue(), nil
}

func (s *Server) pause(ctx context.Context, most time.Duration) bool {
	s.mu.Lock()
	d := time.Duration(s.rng.Int64N(int64(most)))
	s.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
