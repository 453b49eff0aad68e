// Package simnet is a network in memory, for use inside one bubble of testing/synctest: everything that waits, waits
// durably and for simulated time. Connections have buffers with a bound, latency, deadlines; they can be cut with bytes
// on the way and held. Processes can be frozen and killed.
package simnet

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// Link says what a connection is like. The functions are called from many goroutines.
type Link struct {
	Buffer  int                  // bytes of one direction that may be on the way
	Latency func() time.Duration // of each write; nil: none
	// NeverWait makes the client's writes return at once: what finds no room fails as it would at its deadline, and what
	// a frozen client writes waits in the connection. It is for clients that hold a mutex while they write: who waits for
	// a mutex is not durably blocked, so the time of the bubble would stand still.
	NeverWait bool
}

func (l Link) latency() time.Duration {
	if l.Latency == nil {
		return 0
	}
	return l.Latency()
}

// ErrKilled is what a killed process gets from each of its calls. Nobody listens to it any more.
var ErrKilled = errors.New("this process was killed")

// Process is something that can be frozen and killed: a relay, or a server.
type Process struct {
	Name string

	mu     sync.Mutex
	frozen chan struct{} // closed by Thaw; nil while it runs
	dead   bool
	conns  []*Conn // a list: the order of what is done to them is that of their making
	accept func(*Conn)
	dials  DialMode
	group  sync.WaitGroup
}

// DialMode is what happens to those who connect to a process.
type DialMode uint8

// The modes.
const (
	Accept DialMode = iota
	Refuse          // nothing listens
	Hang            // packets are lost
)

// NewProcess returns a running process. accept serves a connection that was made to it, on a goroutine of its own; nil if
// it only dials.
func NewProcess(name string, accept func(*Conn)) *Process {
	return &Process{Name: name, accept: accept}
}

// SetDials says what happens to those who connect to it.
func (p *Process) SetDials(mode DialMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dials = mode
}

// Dial connects to a server.
func (p *Process) Dial(ctx context.Context, server *Process, link Link) (net.Conn, error) {
	if err := p.gate(); err != nil {
		return nil, err
	}
	server.mu.Lock()
	mode := server.dials
	server.mu.Unlock()
	switch mode {
	case Accept:
	case Refuse:
		return nil, &net.OpError{Op: "dial", Net: "sim", Err: syscall.ECONNREFUSED}
	case Hang:
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "sim", Err: context.Cause(ctx)}
	}
	c, s := pair(p, server, link)
	if !p.remember(c) {
		return nil, ErrKilled
	}
	server.remember(s)
	server.group.Go(func() { server.accept(s) })
	return c, nil
}

// Wait waits until every connection to the process has been served.
func (p *Process) Wait() { p.group.Wait() }

func (p *Process) remember(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	c.park(p.frozen != nil)
	return !p.dead
}

func (p *Process) forget(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.conns {
		if other == c {
			p.conns = append(p.conns[:i], p.conns[i+1:]...)
			return
		}
	}
}

// Conns returns its ends of connections, in the order in which they were made.
func (p *Process) Conns() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*Conn(nil), p.conns...)
}

// Freeze stops the process wherever it next touches the network.
func (p *Process) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil && !p.dead {
		p.frozen = make(chan struct{})
		for _, c := range p.conns {
			c.park(true)
		}
	}
}

// Thaw lets it go on.
func (p *Process) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thaw()
}

func (p *Process) thaw() {
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
		for _, c := range p.conns {
			c.park(false)
		}
	}
}

// Frozen reports whether it is.
func (p *Process) Frozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen != nil
}

// Dead reports whether it was killed.
func (p *Process) Dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// Kill ends it for good, in the middle of anything. lose says whether bytes that it has written and that are still on
// their way are lost with it.
func (p *Process) Kill(lose bool) {
	p.mu.Lock()
	p.dead = true
	p.thaw()
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		c.Cut(lose)
	}
}

// CutAll breaks all connections of the process, which lives on.
func (p *Process) CutAll(lose bool) {
	for _, c := range p.Conns() {
		c.Cut(lose)
	}
}

// Gate waits while the process is frozen. It returns ErrKilled once it was killed.
func (p *Process) Gate() error { return p.gate() }

// GateContext waits no longer than ctx runs: it is for those who ask a process that is frozen.
func (p *Process) GateContext(ctx context.Context) error {
	p.mu.Lock()
	frozen := p.frozen
	p.mu.Unlock()
	if frozen == nil {
		return nil
	}
	select {
	case <-frozen:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Process) gate() error {
	for {
		p.mu.Lock()
		frozen, dead := p.frozen, p.dead
		p.mu.Unlock()
		if dead {
			return ErrKilled
		}
		if frozen == nil {
			return nil
		}
		<-frozen
	}
}
