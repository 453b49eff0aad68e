//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

// attributes puts a child into its own process group. There is no parent death signal here: what a killed program leaves,
// the next one removes.
func attributes(_ syscall.Signal, credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential}
}

// UsageOf is only known on Linux.
func UsageOf(pid int) (Usage, error) {
	return Usage{}, fmt.Errorf("usage of process %d: %w", pid, errors.ErrUnsupported)
}

// frozen is only known on Linux.
func frozen(int) (bool, error) { return true, nil }

// maxRSSUnit is the unit of Rusage.Maxrss in bytes.
const maxRSSUnit = 1

// commandLine is the command line of a running process, empty if it cannot be known.
func commandLine(ctx context.Context, pid int) string {
	text, err := exec.CommandContext(ctx, "ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(text)
}
