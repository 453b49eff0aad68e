package sandbox_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// echo is a server that answers every byte with the same, after a greeting.
func echo(t *testing.T, greeting string) (addr string) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, greeting)
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func startProxy(t *testing.T, target string) *sandbox.Proxy {
	t.Helper()
	p, err := sandbox.StartProxy(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func dial(t *testing.T, addr string) (*net.TCPConn, error) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn), nil
}

func mustDial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	conn, err := dial(t, addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	buf := make([]byte, len(want))
	if n, err := io.ReadFull(conn, buf); err != nil || string(buf) != want {
		t.Fatalf("read %q, %v; want %q", buf[:n], err, want)
	}
}

// expectSilence reads for a moment and wants nothing.
func expectSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
		t.Fatalf("read %d bytes, %v; want a time-out", n, err)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func TestProxyCut(t *testing.T) {
	t.Parallel()
	p := startProxy(t, echo(t, ""))
	conn := mustDial(t, p.Addr())
	send(t, conn, "hello")
	expect(t, conn, "hello")
	if n := p.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
	p.Cut()
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the cut: %v, want a reset", err)
	}
	sandbox.WaitFor(t, limit, "no connections", func() (bool, error) { return p.Connections() == 0, nil })
	conn = mustDial(t, p.Addr())
	send(t, conn, "again")
	expect(t, conn, "again")
}

func TestProxyRefuseAndTarget(t *testing.T) {
	t.Parallel()
	p := startProxy(t, echo(t, "one"))
	present := mustDial(t, p.Addr())
	expect(t, present, "one")
	for range 2 {
		if err := p.Refuse(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if _, err := dial(t, p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("while refusing: %v", err)
		}
	}
	send(t, present, "x")
	expect(t, present, "x")
	p.SetTarget(echo(t, "two"))
	for range 2 {
		if err := p.Refuse(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, mustDial(t, p.Addr()), "two")

	p.SetTarget("127.0.0.1:1") // nobody listens there: a reset, perhaps before dial has returned
	conn, err := dial(t, p.Addr())
	if err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		_, err = conn.Read(make([]byte, 1))
	}
	if err == nil || isTimeout(err) {
		t.Errorf("without a target: %v", err)
	}
}

func TestProxyFreeze(t *testing.T) {
	t.Parallel()
	p := startProxy(t, echo(t, ""))
	old := mustDial(t, p.Addr())
	send(t, old, "a")
	expect(t, old, "a")
	p.Freeze()
	p.Freeze()
	fresh := mustDial(t, p.Addr())
	send(t, old, "b")
	send(t, fresh, "x")
	expectSilence(t, old)
	expectSilence(t, fresh)
	p.Thaw()
	p.Thaw()
	expect(t, old, "b")
	expect(t, fresh, "x")

	p.Freeze() // a frozen proxy can be cut and closed
	hanging := mustDial(t, p.Addr())
	sandbox.WaitFor(t, limit, "the third connection", func() (bool, error) { return p.Connections() == 3, nil })
	p.Cut()
	_ = hanging.SetReadDeadline(time.Now().Add(limit))
	if _, err := hanging.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("after the cut: %v", err)
	}
	mustDial(t, p.Addr())
}

func TestProxyDelay(t *testing.T) {
	t.Parallel()
	const delay = 60 * time.Millisecond
	p := startProxy(t, echo(t, ""))
	conn := mustDial(t, p.Addr())
	p.Delay(delay)
	start := time.Now()
	send(t, conn, "a")
	expect(t, conn, "a")
	if d := time.Since(start); d < 2*delay {
		t.Errorf("there and back in %v, want %v at least", d, 2*delay)
	}
	p.Delay(0)
	send(t, conn, "b")
	expect(t, conn, "b")
}

func TestProxyPassesOnAHalfClose(t *testing.T) {
	t.Parallel()
	p := startProxy(t, echo(t, ""))
	conn := mustDial(t, p.Addr())
	const size = 3 << 20
	go func() { // ends with the connection
		_, _ = conn.Write(make([]byte, size))
		_ = conn.CloseWrite()
	}()
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	if n, err := io.Copy(io.Discard, conn); n != size || err != nil {
		t.Errorf("%d bytes came back, %v", n, err)
	}
	sandbox.WaitFor(t, limit, "no connections", func() (bool, error) { return p.Connections() == 0, nil })
}
