package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errEnded means that the server ended while it was waited for.
var errEnded = errors.New("the server ended while it started")

// killedLimit is how long a start is retried after the server was killed: its children hold the data folder until they
// notice.
const killedLimit = 10 * time.Second

// Start starts the server again, on the same port and data, and waits until it accepts connections. A server that runs is
// left as it is.
func (p *Postgres) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("start PostgreSQL: it was closed")
	}
	if p.proc != nil && p.proc.Running() {
		return nil
	}
	limit := time.Duration(0)
	if p.proc != nil {
		if code, err := p.proc.Wait(ctx); err == nil && code == 128+int(syscall.SIGKILL) {
			limit = killedLimit
		}
	}
	err := poll(ctx, limit, func() (bool, error) {
		err := p.start(ctx)
		return err == nil || !errors.Is(err, errEnded) || limit == 0, err
	})
	if err != nil {
		return fmt.Errorf("start PostgreSQL %s on port %d: %w", p.bin.version, p.port, err)
	}
	return nil
}

func (p *Postgres) start(ctx context.Context) error {
	out, err := os.OpenFile(p.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // the server has its own copy
	proc, err := StartProcess(ctx, ProcessConfig{
		Path: filepath.Join(p.bin.dir, "postgres"), Args: []string{"-D", p.data(), "-p", strconv.Itoa(p.port)},
		Env: serverEnv(), onlyEnv: true, Dir: p.folder.path, credential: p.acc.credential,
		file: out, death: syscall.SIGQUIT, // an immediate shutdown: it ends its own children
	})
	if err != nil {
		return err
	}
	p.proc = proc
	err = poll(ctx, startLimit, func() (bool, error) {
		if !proc.Running() {
			return true, errEnded
		}
		return p.ready(proc.PID()), nil
	})
	if err != nil {
		return errors.Join(err, proc.Close(), p.lastLog())
	}
	return nil
}

// ready says whether the server with this pid accepts connections. It says so itself, in the last line of postmaster.pid.
func (p *Postgres) ready(pid int) bool {
	const pidLine, stateLine = 0, 7
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) > stateLine && lines[pidLine] == strconv.Itoa(pid) && strings.TrimSpace(lines[stateLine]) == "ready"
}

// lastLog is the end of the log as an error, for a start that did not work.
func (p *Postgres) lastLog() error {
	const lines = 5
	text, err := p.Log()
	if err != nil {
		return err
	}
	all := strings.Split(strings.TrimSpace(text), "\n")
	return errors.New(strings.Join(all[max(0, len(all)-lines):], "\n"))
}

// Stop shuts the server down and waits for its end. A server that does not run is no error. When ctx ends first the
// shutdown goes on.
func (p *Postgres) Stop(ctx context.Context, mode StopMode) error {
	p.mu.Lock()
	proc := p.proc
	p.mu.Unlock()
	if proc == nil {
		return nil
	}
	if err := proc.Signal(syscall.Signal(mode)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	if _, err := proc.Wait(ctx); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	return nil
}

// Close ends the server and removes all its files. It can be called more than once.
func (p *Postgres) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	proc := p.proc
	p.mu.Unlock()
	if closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	err := p.Stop(ctx, Immediate)
	if err != nil && proc != nil { // frozen, perhaps
		err = proc.Close()
	}
	// The children of a server that was killed may still write for a moment.
	return errors.Join(err, poll(ctx, stopLimit, func() (bool, error) {
		err := p.folder.remove()
		return err == nil || !errors.Is(err, syscall.ENOTEMPTY), err
	}))
}
