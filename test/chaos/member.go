package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// member is one of the relays: a process that is started again and again, with the network of one machine.
type member struct {
	name      string
	path      string // of another program than this one; "": this one
	pgProxy   *sandbox.Proxy
	natsProxy link
	args      []string
	log       *os.File

	mu        sync.Mutex
	process   *sandbox.Process
	confirmed []confirmation // all that has passed
}

func (m *member) proc() *sandbox.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

// start runs the relay, unless it runs.
func (m *member) start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil && m.process.Running() {
		return nil
	}
	p, err := sandbox.StartProcess(ctx, sandbox.ProcessConfig{
		Path: m.path, Args: m.args, Env: []string{childEnv + "=" + childKind}, Stdout: m.log, Stderr: m.log,
	})
	if err != nil {
		return err
	}
	m.process = p
	return nil
}

func (m *member) close() error {
	if p := m.proc(); p != nil {
		return p.Close()
	}
	return nil
}

// cut ends the member's connections, and with them whatever its proxies hold, and forgets their hooks.
func (m *member) cut() {
	m.onPg(nil)
	m.natsProxy.OnNATS(nil)
	m.pgProxy.Cut()
	m.natsProxy.Cut()
}

// story tells what happens, with the time since the start. It is safe for concurrent use.
type story struct {
	mu    sync.Mutex
	w     io.Writer
	start time.Time
}

func (s *story) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.w, "%7.1f s  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

const pollEvery = 20 * time.Millisecond

// waitFor asks until the answer is yes, an error, or the limit.
func waitFor(ctx context.Context, limit time.Duration, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	for {
		done, err := ask()
		if done || err != nil {
			return err
		}
		if !sleep(ctx, pollEvery) {
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
}

// sleep waits and reports whether ctx still runs.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
