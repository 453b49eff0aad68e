package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// shared holds the servers of this test program. It is the one package variable: tests of one program have nothing else in
// common that could carry them, and a server per test would cost a second each.
var shared sharedServers

// sharedServers start when they are first asked for, and end once. It is safe for concurrent use.
type sharedServers struct {
	pgOnce sync.Once
	pg     *Postgres
	pgErr  error

	natsOnce sync.Once
	nats     *NATS
	natsErr  error
}

func (s *sharedServers) postgres() (*Postgres, error) {
	s.pgOnce.Do(func() {
		cfg := PostgresConfig{}
		if text := os.Getenv(majorEnv); text != "" {
			cfg.Major, s.pgErr = strconv.Atoi(text)
			if s.pgErr != nil {
				s.pgErr = fmt.Errorf("%s: %w", majorEnv, s.pgErr)
				return
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), downloadLimit)
		defer cancel()
		s.pg, s.pgErr = StartPostgres(ctx, cfg)
	})
	return s.pg, s.pgErr
}

func (s *sharedServers) jetStream() (*NATS, error) {
	s.natsOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), natsReadyLimit)
		defer cancel()
		s.nats, s.natsErr = StartNATS(ctx, NATSConfig{})
	})
	return s.nats, s.natsErr
}

// close ends the servers that were started. Those that were not can not be started any more.
func (s *sharedServers) close() error {
	errClosed := errors.New("the shared servers are closed")
	s.pgOnce.Do(func() { s.pgErr = errClosed })
	s.natsOnce.Do(func() { s.natsErr = errClosed })
	var err error
	if s.pg != nil {
		err = s.pg.Close()
	}
	if s.nats != nil {
		err = errors.Join(err, s.nats.Close())
	}
	return err
}

// Run is the body of a TestMain: os.Exit(sandbox.Run(m)). It calls [Main], runs the tests, closes the shared servers and
// looks for leaked goroutines. The result is the exit code.
func Run(m *testing.M, options ...goleak.Option) int {
	Main()
	code := m.Run()
	err := shared.close()
	if code == 0 {
		err = errors.Join(err, goleak.Find(options...))
	}
	if err != nil {
		_, _ = io.WriteString(os.Stderr, "after the tests: "+err.Error()+"\n")
		return max(code, 1)
	}
	return code
}

// unavailable ends a test that needs PostgreSQL: on CI, or when one is there but does not work, it fails.
func unavailable(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrNoPostgres) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	t.Fatal(err)
}
