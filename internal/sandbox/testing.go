package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	majorEnv  = "RELAY_TEST_POSTGRES_MAJOR"
	majorsEnv = "RELAY_TEST_MAJORS"

	testLimit = 30 * time.Second // of one administrative step of a helper
	nameBytes = 40
	tagBytes  = 8 // the part of a name that makes it unique
)

// PG is the PostgreSQL that all tests of this program share. It starts with the first test that asks and ends in [Run]. A
// test that stops it or changes its settings starts its own instead. Without a PostgreSQL the test is skipped, or fails
// when CI=true.
func PG(t testing.TB) *Postgres {
	t.Helper()
	pg, err := shared.postgres()
	if err != nil {
		unavailable(t, err)
	}
	return pg
}

// JetStream is the NATS server, in this process, that all tests of this program share. See [PG].
func JetStream(t testing.TB) *NATS {
	t.Helper()
	n, err := shared.jetStream()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Database makes an empty database on the shared PostgreSQL and returns its URL. It goes with the test, together with its
// connections and replication slots.
func Database(t testing.TB) string {
	t.Helper()
	return DatabaseOn(t, PG(t))
}

// DatabaseOn is [Database] on a server of the test's own.
func DatabaseOn(t testing.TB, pg *Postgres) string {
	t.Helper()
	name := Name(t)
	ctx, cancel := context.WithTimeout(context.Background(), testLimit)
	defer cancel()
	if err := pg.CreateDatabase(ctx, name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testLimit)
		defer cancel()
		if err := pg.DropDatabase(ctx, name); err != nil {
			t.Error(err)
		}
	})
	return pg.URL(name)
}

// Name is a new name for a slot, a stream, a publication or the like: at most 40 of [a-z0-9_], the first a letter. It
// starts with the test's name and is never the same twice.
func Name(t testing.TB) string {
	t.Helper()
	text := strings.TrimPrefix(strings.ToLower(t.Name()), "test")
	text = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, text)
	text = strings.Trim(text, "_")
	if text == "" || text[0] < 'a' {
		text = "t" + text
	}
	text = strings.TrimRight(text[:min(len(text), nameBytes-1-tagBytes)], "_")
	return text + "_" + strings.ToLower(rand.Text()[:tagBytes])
}

// Logger logs to t, all levels. What comes after the end of the test is dropped.
func Logger(t testing.TB) *slog.Logger {
	t.Helper()
	w := &testWriter{t: t}
	t.Cleanup(w.close)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// testWriter writes lines to a test's log while the test runs: afterwards that would panic.
type testWriter struct {
	mu sync.Mutex
	t  testing.TB // nil after the end of the test
}

func (w *testWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t != nil {
		w.t.Log(string(bytes.TrimSuffix(b, []byte("\n"))))
	}
	return len(b), nil
}

func (w *testWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t = nil
}

// WaitFor calls cond every 10 ms until it reports true. The test fails when limit has passed, with what was waited for and
// cond's last error.
func WaitFor(t testing.TB, limit time.Duration, what string, cond func() (done bool, err error)) {
	t.Helper()
	const every = 10 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	start := time.Now()
	for {
		done, err := cond()
		if done {
			return
		}
		if time.Since(start) > limit {
			t.Fatalf("%s: not within %v; last error: %v", what, limit, err)
		}
		<-tick.C
	}
}

// Majors lists the PostgreSQL majors that a test should run with, ascending: those that RELAY_TEST_MAJORS names (they are
// downloaded when they are missing), or else those that this machine has. Use them with [StartPostgres].
func Majors(t testing.TB) []int {
	t.Helper()
	var majors []int
	if list := os.Getenv(majorsEnv); list != "" {
		for text := range strings.SplitSeq(list, ",") {
			major, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				t.Fatalf("%s=%s: want a list like 14,17,18", majorsEnv, list)
			}
			majors = append(majors, major)
		}
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), testLimit)
		defer cancel()
		found, err := installedHere(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range found {
			majors = append(majors, b.major)
		}
	}
	if len(majors) == 0 {
		unavailable(t, ErrNoPostgres)
	}
	slices.Sort(majors)
	return slices.Compact(majors)
}

func installedHere(ctx context.Context) ([]binaries, error) {
	acc, err := serverAccount()
	if err != nil {
		return nil, err
	}
	return installed(ctx, acc)
}
