package sandbox

import (
	"bytes"
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

// attributes puts a child into its own process group, so that Ctrl-C in a terminal reaches only the program that cleans up,
// and has the kernel send it death when the thread that started it ends.
func attributes(death syscall.Signal, credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death, Credential: credential}
}

// clockTick is the unit of the times in /proc: USER_HZ, which Linux fixes at 100 on every architecture Go knows.
const clockTick = 10 * time.Millisecond

// UsageOf reads what a running process has used so far. Any process of this machine may be named.
func UsageOf(pid int) (Usage, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	u, err := parseUsage(string(stat), string(status))
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	return u, nil
}

// frozen says whether all threads of a process are stopped.
func frozen(pid int) (bool, error) {
	paths, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	if err != nil || len(paths) == 0 {
		return true, errors.Join(err, os.ErrProcessDone)
	}
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			return false, err // this thread has just ended
		}
		if end := bytes.LastIndexByte(stat, ')'); !bytes.HasPrefix(stat[end+1:], []byte(" T")) {
			return false, nil
		}
	}
	return true, nil
}

// parseUsage reads the texts of /proc/<pid>/stat and /proc/<pid>/status.
func parseUsage(stat, status string) (Usage, error) {
	// The second field is the name in parentheses, which may hold blanks and parentheses itself.
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	const user, system = 14 - 3, 15 - 3 // numbered from 1 in proc(5); the first after the name is field 3
	if end < 0 || len(fields) <= system {
		return Usage{}, errors.New("unknown form of /proc/<pid>/stat")
	}
	var u Usage
	for _, i := range []int{user, system} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return Usage{}, err
		}
		u.CPU += time.Duration(ticks) * clockTick
	}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		if name != "VmRSS" && name != "VmHWM" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return Usage{}, err
		}
		if name == "VmRSS" {
			u.RSSBytes = kib << 10
		} else {
			u.PeakRSSBytes = kib << 10
		}
	}
	return u, nil
}

// maxRSSUnit is the unit of Rusage.Maxrss in bytes.
const maxRSSUnit = 1 << 10

// commandLine is the command line of a running process, empty if it cannot be known.
func commandLine(_ context.Context, pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	return string(bytes.ReplaceAll(text, []byte{0}, []byte{' '}))
}
