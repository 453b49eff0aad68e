package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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
	for range portTries {
		l, err := listenOn(ctx, firstPort+rand.IntN(lastPort-firstPort))
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("find a free port between %d and %d: none in %d tries", firstPort, lastPort, portTries)
}

func listenOn(ctx context.Context, port int) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
}

// freePort names a port that was free a moment ago. Another program may take it before its user does: retry then.
func freePort(ctx context.Context) (int, error) {
	l, err := listen(ctx)
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
