package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

const (
	childEnv  = "RELAY_SANDBOX_CHILD"  // what this program is, when it is a child of itself
	configEnv = "RELAY_SANDBOX_CONFIG" // its configuration, as JSON
	natsChild = "nats"
	nodeChild = "node"
	readyLine = "relay-sandbox: ready\n" // what a child writes to its standard output when it serves
)

// Main turns this program into a child server and never returns, if it was started as one by [StartNATSProcess] or
// [StartNATSCluster]. Programs that use these must call it first thing in main or TestMain.
func Main() {
	kind := os.Getenv(childEnv)
	if kind == "" {
		return
	}
	var err error
	switch kind {
	case natsChild:
		err = serveNATS(os.Getenv(configEnv))
	case nodeChild:
		err = serveNode(os.Getenv(configEnv))
	default:
		err = fmt.Errorf("unknown kind of child %q", kind)
	}
	if err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
		os.Exit(1)
	}
	os.Exit(0)
}

func serveNATS(config string) error {
	var cfg NATSConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return fmt.Errorf("read %s: %w", configEnv, err)
	}
	return cfg.serve()
}

// serve runs a NATS server until SIGTERM, SIGINT or the end of the standard input, which ends with the parent.
func (cfg NATSConfig) serve() error {
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	srv, err := cfg.run(ctx)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(os.Stdout, readyLine); err != nil {
		return err
	}
	go func() { // ends with the program
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	<-ctx.Done()
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil
}

// NATSProcess is a NATS server in a process of its own, which can be frozen and killed and whose use of the machine can be
// read. It is safe for concurrent use.
type NATSProcess struct {
	cfg    NATSConfig
	folder *folder // nil when the store is the caller's

	mu     sync.Mutex
	proc   *Process // the last one started; nil before the first
	closed bool
}

// StartNATSProcess runs this executable again as a NATS server; see [Main]. ctx bounds the start, not its life.
func StartNATSProcess(ctx context.Context, cfg NATSConfig) (*NATSProcess, error) {
	if cfg.Configure != nil {
		return nil, errors.New("start NATS process: Configure cannot reach another process")
	}
	if os.Getenv(childEnv) != "" {
		return nil, errors.New("start NATS process: this is such a process: call sandbox.Main first in main or TestMain")
	}
	n := &NATSProcess{cfg: cfg}
	var err error
	n.folder, err = n.cfg.prepare(ctx)
	if err != nil {
		return nil, err
	}
	err = n.cfg.withPort(ctx, func() error { return n.Start(ctx) })
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Start starts the server again, on the same port and store, and waits until it serves. A server that runs is left as it is.
func (n *NATSProcess) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errors.New("start NATS process: it was closed")
	}
	if n.proc != nil && n.proc.Running() {
		return nil
	}
	config, err := json.Marshal(n.cfg)
	if err != nil {
		return fmt.Errorf("start NATS process: %w", err)
	}
	ready := &lineSignal{line: []byte(readyLine), seen: make(chan struct{})}
	proc, err := StartProcess(ctx, ProcessConfig{
		Env: []string{childEnv + "=" + natsChild, configEnv + "=" + string(config)}, Stdout: ready, HoldStdin: true,
	})
	if err != nil {
		return fmt.Errorf("start NATS process: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, natsReadyLimit, errLimit)
	defer cancel()
	select {
	case <-ready.seen:
		n.proc = proc
		return nil
	case <-proc.Done():
		err = errEnded
	case <-ctx.Done():
		err = fmt.Errorf("%w: is sandbox.Main called first in main or TestMain?", context.Cause(ctx))
	}
	return fmt.Errorf("start NATS process on port %d: %w: %s", n.cfg.Port, errors.Join(err, proc.Close()), proc.Tail())
}

// Process is the server's process that was started last.
func (n *NATSProcess) Process() *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// URL is where clients connect, with the user and password if there are any. It stays the same across Stop and Start.
func (n *NATSProcess) URL() string { return n.cfg.url() }

// Addr is host:port, for a proxy.
func (n *NATSProcess) Addr() string { return fmt.Sprintf("%s:%d", loopback, n.cfg.Port) }

// PID is the process id of the server that was started last.
func (n *NATSProcess) PID() int { return n.Process().PID() }

// Signal sends a signal to the server: to freeze it use the Freeze of its Process.
func (n *NATSProcess) Signal(sig os.Signal) error { return n.Process().Signal(sig) }

// Kill ends the server with SIGKILL and waits for its end. The store stays.
func (n *NATSProcess) Kill() error { return n.Process().Kill() }

// Stop shuts the server down in good order and waits for its end. The store stays.
func (n *NATSProcess) Stop(ctx context.Context) error {
	proc := n.Process()
	if err := proc.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop NATS process: %w", err)
	}
	if _, err := proc.Wait(ctx); err != nil {
		return fmt.Errorf("stop NATS process: %w", err)
	}
	return nil
}

// Close kills the server and removes its store, unless the store was given. It can be called more than once.
func (n *NATSProcess) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	var err error
	if n.proc != nil {
		err = n.proc.Close()
	}
	if n.folder != nil {
		err = errors.Join(err, n.folder.remove())
	}
	return err
}

// lineSignal closes seen when the line was written to it. It belongs to one writer.
type lineSignal struct {
	line, got []byte
	seen      chan struct{}
}

func (l *lineSignal) Write(b []byte) (int, error) {
	if l.line == nil {
		return len(b), nil
	}
	l.got = append(l.got, b...)
	if bytes.Contains(l.got, l.line) {
		l.line, l.got = nil, nil
		close(l.seen)
	}
	return len(b), nil
}
