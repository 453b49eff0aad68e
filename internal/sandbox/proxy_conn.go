package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunkBytes = 32 << 10
	queueSize  = 64 // pieces that were read and not yet written, per direction

	settleLimit = time.Second
)

// proxyConn is one client's connection and its counterpart to the target.
type proxyConn struct {
	proxy  *Proxy
	number int // from 1, in the order of their arrival
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	client *net.TCPConn
	server *net.TCPConn // nil until it is dialled
	over   bool
}

func newProxyConn(p *Proxy, number int, client *net.TCPConn) *proxyConn {
	ctx, cancel := context.WithCancel(context.Background())
	return &proxyConn{proxy: p, number: number, ctx: ctx, cancel: cancel, client: client}
}

// reset ends both sides with a TCP reset. It can be called more than once.
func (c *proxyConn) reset() { c.end(true) }

func (c *proxyConn) end(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	c.cancel()
	for _, conn := range []*net.TCPConn{c.client, c.server} {
		if conn == nil {
			continue
		}
		if reset {
			_ = conn.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// run dials the target and forwards both directions until both have ended, or one has failed.
func (c *proxyConn) run() {
	defer c.proxy.forget(c)
	defer c.end(false)
	if !c.passGate() || !c.dial() {
		c.reset()
		return
	}
	shared := &pgShared{}
	up := newStream(c, c.client, c.server, true, shared)
	down := newStream(c, c.server, c.client, false, shared)
	var wg sync.WaitGroup
	wg.Go(up.read)
	wg.Go(up.write)
	wg.Go(down.read)
	wg.Go(down.write)
	wg.Wait()
}

func (c *proxyConn) dial() bool {
	var d net.Dialer
	_, target := c.proxy.open()
	conn, err := d.DialContext(c.ctx, "tcp", target)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		_ = conn.Close()
		return false
	}
	c.server = conn.(*net.TCPConn)
	return true
}

// passGate waits while the proxy is frozen. It returns false when the connection ended meanwhile.
func (c *proxyConn) passGate() bool {
	for {
		gate, _ := c.proxy.open()
		select {
		case <-gate:
			return c.ctx.Err() == nil
		case <-c.ctx.Done():
			return false
		}
	}
}

// piece is a run of bytes on its way through a stream, or its end.
type piece struct {
	data []byte
	due  time.Time       // not before
	held <-chan struct{} // not before this is closed; nil: not held
	end  ending
}

type ending int

const (
	open      ending = iota
	closing          // the sender has closed its side
	resetting        // the sender has reset the connection, or a hook wants it cut
)

// stream is one direction of a connection: read makes pieces, asking the hooks, and write delivers them in order.
type stream struct {
	conn     *proxyConn
	src, dst *net.TCPConn
	queue    chan piece
	splitter splitter
}

func newStream(c *proxyConn, src, dst *net.TCPConn, toServer bool, shared *pgShared) *stream {
	return &stream{
		conn: c, src: src, dst: dst, queue: make(chan piece, queueSize),
		splitter: splitter{proxy: c.proxy, connection: c.number, toServer: toServer, shared: shared},
	}
}

func (s *stream) read() {
	defer close(s.queue)
	buf := make([]byte, chunkBytes)
	for {
		n, err := s.src.Read(buf)
		for _, p := range s.splitter.feed(buf[:n]) {
			if !s.put(p) || p.end != open {
				return
			}
		}
		if err != nil {
			last := piece{end: resetting}
			if errors.Is(err, io.EOF) {
				last.end = closing
			}
			s.put(last)
			return
		}
	}
}

func (s *stream) put(p piece) bool {
	select {
	case s.queue <- p:
		return true
	case <-s.conn.ctx.Done():
		return false
	}
}

func (s *stream) write() {
	for p := range s.queue {
		if !s.wait(p) {
			return
		}
		if len(p.data) > 0 {
			if _, err := s.dst.Write(p.data); err != nil {
				s.conn.reset()
				return
			}
		}
		switch p.end {
		case open:
		case closing:
			_ = s.dst.CloseWrite()
			return
		case resetting:
			s.settle()
			s.conn.reset()
			return
		}
	}
}

// settle waits until the receiver has all that was written, so that a reset does not overtake it. A receiver that takes
// nothing is not waited for beyond settleLimit.
func (s *stream) settle() {
	_ = poll(s.conn.ctx, settleLimit, func() (bool, error) { // what it does not get then is lost to the reset, as on a wire
		n, err := unacked(s.dst)
		return n == 0 || err != nil, err
	})
}

// wait waits until the piece may be delivered. It returns false when the connection ended meanwhile.
func (s *stream) wait(p piece) bool {
	if d := time.Until(p.due); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.conn.ctx.Done():
			return false
		}
	}
	if p.held != nil {
		select {
		case <-p.held:
		case <-s.conn.ctx.Done():
			return false
		}
	}
	return s.conn.passGate()
}
