package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Ports come from below the ranges that Linux (32768) and macOS (49152) take for outgoing connections.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 100
)

// listen opens a listener on a free port of 127.0.0.1.
func listen(ctx context.Context) (net.Listener, error) {
	l, claimed, err := listenClaimed(ctx)
	if err == nil {
		claimed.release()
	}
	return l, err
}

// listenClaimed opens a listener on a free port that is claimed for this program.
func listenClaimed(ctx context.Context) (net.Listener, claim, error) {
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort)
		claimed, ok := claimPort(port)
		if !ok {
			continue
		}
		l, err := listenOn(ctx, port)
		if err == nil {
			return l, claimed, nil
		}
		claimed.release()
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, noClaim, err
		}
	}
	return nil, noClaim, fmt.Errorf("find a free port between %d and %d: none in %d tries", firstPort, lastPort, portTries)
}

// claim keeps a port from other programs that choose theirs here, until it is released or this program ends. A server that
// was stopped wants its port back. It is a lock on a file; where that cannot be had, nothing is claimed.
type claim int

const noClaim claim = -1

func claimPort(port int) (_ claim, free bool) {
	folder := filepath.Join(os.TempDir(), "relay-sandbox-ports")
	if err := os.Mkdir(folder, 0o777); err == nil {
		_ = os.Chmod(folder, 0o1777) //nolint:gosec // several users' programs meet here
	}
	fd, err := syscall.Open(filepath.Join(folder, strconv.Itoa(port)), syscall.O_CREAT|syscall.O_RDONLY|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return noClaim, true
	}
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = syscall.Close(fd)
		return noClaim, !errors.Is(err, syscall.EWOULDBLOCK)
	}
	return claim(fd), true
}

func (c claim) release() {
	if c != noClaim {
		_ = syscall.Close(int(c))
	}
}

func listenOn(ctx context.Context, port int) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
}

// freePort names a port that was free a moment ago, and claims it. A program that knows no claims may take it before its user
// does: retry then.
func freePort(ctx context.Context) (int, error) {
	l, _, err := listenClaimed(ctx)
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// portTaken says whether somebody listens on port.
func portTaken(ctx context.Context, port int) bool {
	l, err := listenOn(ctx, port)
	if err != nil {
		return errors.Is(err, syscall.EADDRINUSE)
	}
	_ = l.Close()
	return false
}

const loopback = "127.0.0.1"
