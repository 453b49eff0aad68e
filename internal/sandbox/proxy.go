package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
)

// Proxy forwards TCP connections from a loopback port to a target and injects faults. It is safe for concurrent use.
//
// On connections without TLS it follows the protocols of PostgreSQL and NATS, which it tells apart by their first byte, and
// asks a hook about every message; see [Proxy.OnPg] and [Proxy.OnNATS].
type Proxy struct {
	addr string
	wg   sync.WaitGroup // all goroutines: Close waits for them

	hookMu sync.Mutex // held while a hook runs: one at a time

	mu       sync.Mutex
	target   string
	listener net.Listener // nil while connections are refused
	conns    map[*proxyConn]struct{}
	numbered int // connections so far
	closed   bool
	delay    time.Duration
	gate     chan struct{} // closed while open; replaced by Freeze
	released chan struct{} // closed, and replaced, by Release
	pgHook   func(PgMessage) Action
	natsHook func(NATSMessage) Action
}

// Action is what a hook wants done with a message.
type Action int

// The answers of a hook.
const (
	Forward       Action = iota // pass it on
	Hold                        // keep it, and all that follows in its direction, until [Proxy.Release]
	Drop                        // leave it out
	CutConnection               // pass on what came before it, then reset the connection
)

// StartProxy starts a proxy to target (host:port) on a free port of 127.0.0.1. ctx bounds the start, not its life.
func StartProxy(ctx context.Context, target string) (*Proxy, error) {
	l, err := listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p := &Proxy{
		addr: l.Addr().String(), target: target, listener: l, conns: map[*proxyConn]struct{}{},
		gate: make(chan struct{}), released: make(chan struct{}),
	}
	close(p.gate)
	p.wg.Go(func() { p.accept(l) })
	return p, nil
}

// accept takes connections until the listener is closed. It only fails for good.
func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			_ = client.Close()
			return
		}
		p.numbered++
		c := newProxyConn(p, p.numbered, client.(*net.TCPConn))
		p.conns[c] = struct{}{}
		p.wg.Go(c.run)
		p.mu.Unlock()
	}
}

// Addr is host:port, where clients connect.
func (p *Proxy) Addr() string { return p.addr }

// Connections counts the connections that are open now, hanging ones included.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// SetTarget changes where new connections go.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Cut resets all connections that are open now, on both sides. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.reset()
	}
}

// Refuse closes the proxy's port, so that new connections are refused, or opens it again. Present ones go on.
func (p *Proxy) Refuse(ctx context.Context, on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || on == (p.listener == nil) {
		return nil
	}
	if on {
		l := p.listener
		p.listener = nil
		return l.Close()
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", p.addr)
	if err != nil {
		return fmt.Errorf("open the proxy's port again: %w", err)
	}
	p.listener = l
	p.wg.Go(func() { p.accept(l) })
	return nil
}

// Freeze stops all traffic and closes nothing. New connections are accepted and hang.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default: // frozen
	}
}

// Thaw lets everything continue that Freeze has stopped.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// Delay has everything that is read from now on arrive d later, in both directions. It adds to the latency; the throughput
// suffers only beyond about 2 MB per d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// OnPg sets the hook for the messages of PostgreSQL connections; nil takes it away. Hooks run one at a time, also those of
// different connections, and may call any method but Close.
func (p *Proxy) OnPg(hook func(PgMessage) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pgHook = hook
}

// OnNATS sets the hook for the messages of NATS connections; nil takes it away. See [Proxy.OnPg].
func (p *Proxy) OnNATS(hook func(NATSMessage) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.natsHook = hook
}

// Release passes on everything that is held now.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.released)
	p.released = make(chan struct{})
}

// HoldConfirmAbove lets everything pass until the first status update that confirms an LSN above lsn. It holds that one, and
// what follows it, and closes the channel. [Proxy.Release] passes it on; later ones are not held. It replaces the hook of
// OnPg.
func (p *Proxy) HoldConfirmAbove(lsn pglogrepl.LSN) <-chan struct{} {
	held := make(chan struct{})
	fired := false
	p.OnPg(func(m PgMessage) Action {
		if fired || !m.IsStatusUpdate() || m.Flush <= lsn {
			return Forward
		}
		fired = true
		close(held)
		return Hold
	})
	return held
}

// Close closes the port, resets all connections and waits until nothing of the proxy runs. It can be called more than once.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	var err error
	if p.listener != nil {
		err = p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		c.reset()
	}
	p.mu.Unlock()
	p.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) forget(c *proxyConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// state is what a connection needs for the bytes that it has just read.
func (p *Proxy) state() (delay time.Duration, released <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay, p.released
}

func (p *Proxy) open() (gate <-chan struct{}, target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate, p.target
}

func (p *Proxy) askPg(m PgMessage) Action {
	p.mu.Lock()
	hook := p.pgHook
	p.mu.Unlock()
	if hook == nil {
		return Forward
	}
	p.hookMu.Lock()
	defer p.hookMu.Unlock()
	return hook(m)
}

func (p *Proxy) askNATS(m NATSMessage) Action {
	p.mu.Lock()
	hook := p.natsHook
	p.mu.Unlock()
	if hook == nil {
		return Forward
	}
	p.hookMu.Lock()
	defer p.hookMu.Unlock()
	return hook(m)
}

// HoldFirst makes a hook that holds the first message which the condition is true of, and what follows it, and closes held
// then. It can be the hook of several proxies.
func HoldFirst[M any](is func(M) bool) (hook func(M) Action, held <-chan struct{}) {
	signal := make(chan struct{})
	var mu sync.Mutex
	fired := false
	return func(m M) Action {
		mu.Lock()
		defer mu.Unlock()
		if fired || !is(m) {
			return Forward
		}
		fired = true
		close(signal)
		return Hold
	}, signal
}
