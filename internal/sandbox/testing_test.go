package sandbox_test

import (
	"net"
	"regexp"
	"strconv"
	"testing"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

func mustPort(t *testing.T, addr string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestName(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)
	seen := map[string]bool{}
	for _, sub := range []string{"", "1", "Ünïcode ✓", "a very long name that goes on and on and on and on"} {
		t.Run(sub, func(t *testing.T) {
			for range 10 {
				name := sandbox.Name(t)
				if !form.MatchString(name) || seen[name] {
					t.Errorf("%q", name)
				}
				seen[name] = true
			}
		})
	}
}

func TestLoggerOutlivesItsTest(t *testing.T) {
	t.Parallel()
	log := sandbox.Logger(t)
	t.Run("inner", func(t *testing.T) { log = sandbox.Logger(t) })
	log.Info("nobody reads this")
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("inner", func(t *testing.T) {
		url = sandbox.Database(t)
		exec(t, connect(t, url), "CREATE TABLE x (n int)")
	})
	other := sandbox.Database(t)
	if other == url {
		t.Errorf("the same database twice: %s", url)
	}
	exec(t, connect(t, other), "CREATE TABLE x (n int)")
}
