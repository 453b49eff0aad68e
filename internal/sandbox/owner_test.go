package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// ownerEnv makes the test program one that owns a PostgreSQL and a NATS process and waits to be killed.
const ownerEnv = "RELAY_SANDBOX_TEST_OWNER"

// ownServers only returns when something is wrong, and says what.
func ownServers() {
	ctx := context.Background()
	pg, err := sandbox.StartPostgres(ctx, sandbox.PostgresConfig{})
	var n *sandbox.NATSProcess
	if err == nil {
		n, err = sandbox.StartNATSProcess(ctx, sandbox.NATSConfig{})
	}
	answer := fmt.Sprintln(err)
	if err == nil {
		answer = fmt.Sprintln(pg.PID(), n.PID(), filepath.Dir(pg.SocketDir()))
	}
	if _, writeErr := os.Stdout.WriteString(answer); writeErr == nil && err == nil {
		select {}
	}
}

func TestNothingOutlivesAKilledOwner(t *testing.T) {
	t.Parallel()
	sandbox.PG(t) // skips without a PostgreSQL
	owner, err := sandbox.StartProcess(t.Context(), sandbox.ProcessConfig{Env: []string{ownerEnv + "=1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	var pids []int
	var folder string
	sandbox.WaitFor(t, limit, "the owner's servers", func() (bool, error) {
		fields := strings.Fields(owner.Tail())
		if len(fields) != 3 || !strings.HasSuffix(owner.Tail(), "\n") {
			return !owner.Running(), errors.New(owner.Tail())
		}
		for _, text := range fields[:2] {
			pid, err := strconv.Atoi(text)
			if err != nil {
				return false, err
			}
			pids = append(pids, pid)
		}
		folder = fields[2]
		return true, nil
	})
	if len(pids) != 2 {
		t.Fatal("the owner did not start: ", owner.Tail())
	}
	if err := owner.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		sandbox.WaitFor(t, limit, fmt.Sprintf("end of process %d", pid), func() (bool, error) {
			return gone(pid), nil
		})
	}

	// The folder goes with the next start of anything.
	n, err := sandbox.StartNATS(t.Context(), sandbox.NATSConfig{Logger: sandbox.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	sandbox.WaitFor(t, limit, "removal of "+folder, func() (bool, error) { // other tests sweep too
		_, err := os.Stat(folder)
		return errors.Is(err, os.ErrNotExist), err
	})
}

// gone says whether a process has ended. One that nobody has waited for yet has ended too.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}
