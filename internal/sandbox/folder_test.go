package sandbox

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// endedPID is the pid of a process that has ended.
func endedPID(t *testing.T) int {
	t.Helper()
	p, err := StartProcess(t.Context(), ProcessConfig{Path: "/bin/sh", Args: []string{"-c", "exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(t.Context()); code != 3 || err != nil {
		t.Fatalf("exit code %d, %v", code, err)
	}
	return p.PID()
}

func TestSweepRemovesOnlyWhatIsAbandoned(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dead, live := strconv.Itoa(endedPID(t)), strconv.Itoa(os.Getpid())
	locked := folderPrefix + dead + "-locked" // its owner is in another container
	stays := []string{folderPrefix + live + "-x", folderPrefix + "x-x", "other-" + dead + "-x", locked, folderPrefix + dead}
	goes := []string{folderPrefix + dead + "-x", folderPrefix + dead + "-server"}
	for _, name := range append(append([]string{}, stays...), goes...) {
		if err := os.MkdirAll(filepath.Join(base, name, dataFolder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := tryLock(filepath.Join(base, locked, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()

	// A leftover server: a process with the data folder in its command line, named by postmaster.pid. And a pid that has
	// become somebody else's.
	data := filepath.Join(base, goes[1], dataFolder)
	server, err := StartProcess(t.Context(), ProcessConfig{Path: "/bin/sh", Args: []string{"-c", "read line", data}, HoldStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	writePID(t, data, server.PID())
	writePID(t, filepath.Join(base, goes[0], dataFolder), os.Getpid())

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sweep(ctx, base, discard())

	if code, err := server.Wait(ctx); err != nil || code < 128 {
		t.Errorf("the leftover server ended with %d, %v", code, err)
	}
	for _, name := range stays {
		if _, err := os.Stat(filepath.Join(base, name)); err != nil {
			t.Errorf("%s was removed: %v", name, err)
		}
	}
	for _, name := range goes {
		if _, err := os.Stat(filepath.Join(base, name)); err == nil {
			t.Errorf("%s was not removed", name)
		}
	}
}

func writePID(t *testing.T, data string, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(data, "postmaster.pid"), []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n": "15.18 15",
		"postgres (PostgreSQL) 18beta1\n":                        "18beta1 18",
		"postgres (PostgreSQL) 17\n":                             "17 17",
		"something else":                                         "",
	} {
		version, major, err := parseVersion(text)
		got := strings.TrimSpace(version + " " + strconv.Itoa(major))
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}
