package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// folderPrefix starts the name of every folder: relay-sandbox-<pid of the owner>-<random>.
const folderPrefix = "relay-sandbox-"

// A socket's whole path must be shorter than 104 bytes on macOS, 108 on Linux; this is what a folder may use of it.
const maxFolderBase = 50

const lockFile = "owner.lock"

// folder is a temporary folder of this process. While it exists its lock is held, so that a process which does not see our
// pid (another container with the same /tmp) does not take it for a leftover.
type folder struct {
	path string
	lock *os.File
}

// newFolder makes a folder that acc can enter. It first removes what processes that are gone have left.
func newFolder(ctx context.Context, acc account, log *slog.Logger) (*folder, error) {
	base := os.TempDir()
	if len(base) > maxFolderBase {
		base = "/tmp"
	}
	base, err := acc.reachable(base, "/tmp")
	if err != nil {
		return nil, err
	}
	sweep(ctx, base, log)

	path, err := os.MkdirTemp(base, folderPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	f := &folder{path: path}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return f, nil
}

func (f *folder) open() error {
	if err := os.Chmod(f.path, 0o755); err != nil { // MkdirTemp: 0700
		return err
	}
	lock, err := tryLock(filepath.Join(f.path, lockFile))
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.path, err)
	}
	f.lock = lock
	return nil
}

// join is a path inside the folder.
func (f *folder) join(name string) string { return filepath.Join(f.path, name) }

// remove deletes the folder with all that is in it. It can be tried again when it fails.
func (f *folder) remove() error {
	if err := os.RemoveAll(f.path); err != nil {
		return err
	}
	return f.lock.Close()
}

// sweep removes the folders in base whose owner is gone. It is best effort: what it cannot remove stays for the next one.
func sweep(ctx context.Context, base string, log *slog.Logger) {
	paths, err := filepath.Glob(filepath.Join(base, folderPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		if !abandoned(path) {
			continue
		}
		err := endServer(ctx, filepath.Join(path, dataFolder))
		if err == nil {
			err = os.RemoveAll(path)
		}
		if err != nil {
			log.WarnContext(ctx, "remove the leftovers of a sandbox", "folder", path, "err", err)
			continue
		}
		log.InfoContext(ctx, "removed the leftovers of a sandbox", "folder", path)
	}
}

// abandoned says whether path is a folder of ours whose owner is gone.
func abandoned(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return false
	}
	text, _, found := strings.Cut(strings.TrimPrefix(filepath.Base(path), folderPrefix), "-")
	pid, err := strconv.Atoi(text)
	if !found || err != nil || alive(pid) {
		return false
	}
	lock, err := tryLock(filepath.Join(path, lockFile))
	if err != nil {
		return false
	}
	_ = lock.Close()
	return true
}

// endServer ends the PostgreSQL that still runs on the data folder, if there is one.
func endServer(ctx context.Context, data string) error {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil || !strings.Contains(commandLine(ctx, pid), data) {
		return nil // no pid, or one that belongs to another program by now
	}
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
		if err := syscall.Kill(pid, sig); err != nil {
			return ignoreGone(err)
		}
		err = poll(ctx, 5*time.Second, func() (bool, error) { return !alive(pid), nil })
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("end PostgreSQL with pid %d: %w", pid, err)
}

func ignoreGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// alive says whether a process with this pid exists, of whatever user.
func alive(pid int) bool {
	return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// tryLock takes an exclusive lock on the file and fails with EWOULDBLOCK when another holds it. Closing the file, or the end
// of the process, frees it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

const pollInterval = 5 * time.Millisecond

// errLimit is what poll returns when time ran out without an error from its condition.
var errLimit = errors.New("not within the time limit")

// poll calls cond until it reports true. When the limit passes it returns cond's last error, or errLimit.
func poll(ctx context.Context, limit time.Duration, cond func() (bool, error)) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		done, err := cond()
		if done {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-deadline.C:
			return errors.Join(errLimit, err)
		case <-tick.C:
		}
	}
}
