package simnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Conn is one end of a connection. It keeps the contract of net.Conn.
type Conn struct {
	owner *Process
	peer  *Conn
	in    *stream // what the peer wrote
	out   *stream

	neverWait bool // see Link

	mu            sync.Mutex
	readDeadline  time.Time
	writeDeadline time.Time
	closed        bool
}

// pair connects two processes.
func pair(client, server *Process, link Link) (*Conn, *Conn) {
	a, b := newStream(link), newStream(link)
	c := &Conn{owner: client, in: a, out: b}
	s := &Conn{owner: server, in: b, out: a}
	c.peer, s.peer = s, c
	c.neverWait = link.NeverWait
	return c, s
}

// Owner returns the process whose end this is.
func (c *Conn) Owner() *Process { return c.owner }

// Peer returns the process at the other end.
func (c *Conn) Peer() *Process { return c.peer.owner }

func (c *Conn) deadline(of *time.Time) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *of, c.closed
}

// callTime is how long a read takes that brings nothing: a loop that asks again and again does not stand still in time.
const callTime = time.Microsecond

// Read waits for bytes. A process that is frozen gets none.
func (c *Conn) Read(b []byte) (int, error) {
	for {
		if err := c.owner.gate(); err != nil {
			return 0, err
		}
		deadline, closed := c.deadline(&c.readDeadline)
		if closed {
			return 0, net.ErrClosed
		}
		n, next, changed, err := c.in.take(b, deadline)
		if n > 0 || err != nil {
			if err != nil {
				time.Sleep(callTime) //nolint:forbidigo // simulated
			}
			return n, err
		}
		wait(changed, next)
	}
}

// park makes what is written wait, if the connection is one whose writes do not.
func (c *Conn) park(parked bool) {
	if c.neverWait {
		c.out.park(parked)
	}
}

// Write waits for room in the peer's buffer. Bytes of a write that ends early are on their way all the same.
func (c *Conn) Write(b []byte) (int, error) {
	if c.neverWait {
		return c.writeNow(b)
	}
	done := 0
	for {
		if err := c.owner.gate(); err != nil {
			return done, err
		}
		deadline, closed := c.deadline(&c.writeDeadline)
		if closed {
			return done, net.ErrClosed
		}
		n, changed, err := c.out.put(b[done:], deadline)
		done += n
		if done == len(b) || err != nil {
			return done, err
		}
		wait(changed, deadline)
	}
}

func (c *Conn) writeNow(b []byte) (int, error) {
	if c.owner.Dead() {
		return 0, ErrKilled
	}
	if _, closed := c.deadline(&c.writeDeadline); closed {
		return 0, net.ErrClosed
	}
	n, _, err := c.out.put(b, time.Time{})
	if n < len(b) && err == nil {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// wait returns when something has changed, or at a time if one is given.
func wait(changed <-chan struct{}, at time.Time) {
	if at.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

// Close ends this end: the peer reads what is on the way, then the end.
func (c *Conn) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return net.ErrClosed
	}
	c.owner.forget(c)
	c.out.finish(io.EOF, false)
	c.in.finish(syscall.ECONNRESET, true)
	return nil
}

// Cut breaks the connection. If lose is set, bytes on the way to the owner's peer are lost, else they arrive first.
func (c *Conn) Cut(lose bool) {
	c.out.finish(syscall.ECONNRESET, lose)
	c.in.finish(syscall.ECONNRESET, true)
}

// Hold stops or resumes the delivery of bytes to this end. They wait in the buffers.
func (c *Conn) Hold(held bool) { c.in.hold(held) }

// LocalAddr returns an address that means nothing.
func (c *Conn) LocalAddr() net.Addr { return address(c.owner.Name) }

// RemoteAddr returns an address that means nothing.
func (c *Conn) RemoteAddr() net.Addr { return address(c.peer.owner.Name) }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline ends the present and later reads at a time.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.readDeadline = t
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return net.ErrClosed
	}
	c.in.wakeAll()
	return nil
}

// SetWriteDeadline ends the present and later writes at a time.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.writeDeadline = t
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return net.ErrClosed
	}
	c.out.wakeAll()
	return nil
}

type address string

func (a address) Network() string { return "sim" }
func (a address) String() string  { return string(a) }
