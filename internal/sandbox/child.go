package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// ProcessConfig says what to run.
type ProcessConfig struct {
	Path string   // the program; empty: this executable
	Args []string // without the program's name
	Env  []string // added to this process' own environment
	Dir  string   // working folder; empty: ours

	Stdout io.Writer // gets the standard output, besides the tail; nil: only the tail
	Stderr io.Writer // gets the standard error, besides the tail; nil: only the tail

	// HoldStdin gives the child a standard input that stays open and empty until this process closes it, by
	// [Process.CloseStdin] or by its own end. Otherwise it is empty from the start.
	HoldStdin bool

	onlyEnv    bool                // Env is the whole environment
	file       *os.File            // gets both outputs without a copy through this process; there is no tail then
	death      syscall.Signal      // sent by the kernel when we end (Linux); 0: SIGKILL
	credential *syscall.Credential // nil: ourselves
}

// Process is a child process. It ends with this process (on Linux), also when this one is killed. It is safe for
// concurrent use.
type Process struct {
	cmd   *exec.Cmd
	stdin io.Closer // nil unless HoldStdin
	tail  tail
	done  chan struct{} // closed after the process was waited for; guards nothing else
}

// Usage is what a process has used.
type Usage struct {
	CPU          time.Duration // user and system time
	RSSBytes     int64         // resident memory now; 0 after the end of the process
	PeakRSSBytes int64         // the most it ever was
}

// outputDelay bounds the wait for output that a child's own children still hold open after its end.
const outputDelay = 2 * time.Second

// freezeLimit bounds the wait for a process to stand still.
const freezeLimit = 5 * time.Second

// StartProcess runs a program. ctx is not its lifetime: end it with Close.
func StartProcess(ctx context.Context, cfg ProcessConfig) (*Process, error) {
	path := cfg.Path
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this executable: %w", err)
		}
		path = self
	}
	if cfg.death == 0 {
		cfg.death = syscall.SIGKILL
	}

	p := &Process{done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), path, cfg.Args...)
	p.cmd.Dir = cfg.Dir
	p.cmd.Env = cfg.Env
	if !cfg.onlyEnv {
		p.cmd.Env = append(os.Environ(), cfg.Env...)
	}
	p.cmd.WaitDelay = outputDelay
	p.cmd.SysProcAttr = attributes(cfg.death, cfg.credential)
	if cfg.file != nil {
		p.cmd.Stdout, p.cmd.Stderr = cfg.file, cfg.file
	} else {
		p.cmd.Stdout, p.cmd.Stderr = p.tail.and(cfg.Stdout), p.tail.and(cfg.Stderr)
	}
	if cfg.HoldStdin {
		stdin, err := p.cmd.StdinPipe()
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", path, err)
		}
		p.stdin = stdin
	}

	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	return p, nil
}

// run starts the process and waits for it, on one thread: the parent death signal is sent when the thread that started the
// child ends, not the process, so this thread must live as long as the child. The goroutine ends with the child; Close waits
// for it.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	_ = p.cmd.Wait() // how it ended is in cmd.ProcessState
	close(p.done)
}

// PID is the process' id, also after its end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running says whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait waits for the end of the process and returns its exit code, as a shell would tell it: 128 plus the signal's number
// if a signal ended it. The error is only ever that of ctx.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for process %d: %w", p.PID(), context.Cause(ctx))
	}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

// Signal sends a signal. It returns os.ErrProcessDone when the process has ended.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Freeze stops the process with SIGSTOP and waits until all its threads stand still (on Linux), which a bare signal does
// not: a busy process runs on for a moment after it. Thaw lets it continue.
func (p *Process) Freeze(ctx context.Context) error {
	err := p.Signal(syscall.SIGSTOP)
	if err == nil {
		err = poll(ctx, freezeLimit, func() (bool, error) { return frozen(p.PID()) })
	}
	if err != nil {
		return fmt.Errorf("freeze process %d: %w", p.PID(), err)
	}
	return nil
}

// Thaw ends a Freeze.
func (p *Process) Thaw() error { return p.Signal(syscall.SIGCONT) }

// Kill ends the process with SIGKILL and waits for its end. It is no error if it has ended before.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", p.PID(), err)
	}
	<-p.done
	return nil
}

// CloseStdin closes the standard input of a process with HoldStdin.
func (p *Process) CloseStdin() error {
	if p.stdin == nil {
		return nil
	}
	if err := p.stdin.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// Close kills the process if it still runs. It can be called more than once.
func (p *Process) Close() error { return p.Kill() }

// Tail is the last part of what the process has written to standard output and standard error.
func (p *Process) Tail() string { return p.tail.String() }

// Usage is what the process uses, or has used if it has ended.
func (p *Process) Usage() (Usage, error) {
	if p.Running() {
		u, err := UsageOf(p.PID())
		if err == nil || p.Running() {
			return u, err
		}
	}
	st := p.cmd.ProcessState
	u := Usage{CPU: st.UserTime() + st.SystemTime()}
	if ru, ok := st.SysUsage().(*syscall.Rusage); ok {
		u.PeakRSSBytes = ru.Maxrss * maxRSSUnit
	}
	return u, nil
}

// tailBytes is how much of a process' output is kept.
const tailBytes = 64 << 10

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// and is a writer to t and to w, if there is a w.
func (t *tail) and(w io.Writer) io.Writer {
	if w == nil {
		return t
	}
	return io.MultiWriter(t, w)
}
