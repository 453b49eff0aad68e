package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// servers are a PostgreSQL and a NATS: throwaway ones, or the user's. Worlds are made on them.
type servers struct {
	pg      *sandbox.Postgres    // nil: the user's
	nats    *sandbox.NATSProcess // nil: the user's, or a cluster
	cluster *sandbox.NATSCluster
	pgURL   string // of a database where others can be made
	natsURL string
	admin   *pgx.Conn
	js      jetstream.JetStream
}

func startServers(ctx context.Context, cfg config) (_ *servers, err error) {
	s := &servers{pgURL: cfg.pg, natsURL: cfg.nats}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	if s.pgURL == "" {
		// A checkpoint in the middle of a part would be measured with it.
		s.pg, err = sandbox.StartPostgres(ctx, sandbox.PostgresConfig{Settings: map[string]string{
			"max_wal_size": "8GB", "shared_buffers": "256MB", "log_connections": "off", "log_replication_commands": "off",
		}})
		if err != nil {
			return nil, err
		}
		s.pgURL = s.pg.URL("postgres")
	}
	if s.natsURL == "" {
		if s.nats, err = sandbox.StartNATSProcess(ctx, sandbox.NATSConfig{}); err != nil {
			return nil, err
		}
		s.natsURL = s.nats.URL()
	}
	return s, s.connect(ctx)
}

// withCluster returns the same PostgreSQL with three NATS servers.
func (s *servers) withCluster(ctx context.Context) (_ *servers, err error) {
	c := &servers{pgURL: s.pgURL}
	if c.cluster, err = sandbox.StartNATSCluster(ctx, sandbox.NATSConfig{}); err != nil {
		return nil, err
	}
	c.natsURL = c.cluster.URL()
	if err := c.connect(ctx); err != nil {
		return nil, errors.Join(err, c.close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (s *servers) connect(ctx context.Context) (err error) {
	if s.admin, err = pgx.Connect(ctx, s.pgURL); err != nil {
		return err
	}
	nc, err := nats.Connect(s.natsURL, nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	s.js, err = jetstream.New(nc)
	return err
}

func (s *servers) close(ctx context.Context) error {
	var errs []error
	if s.js != nil {
		s.js.Conn().Close()
	}
	if s.admin != nil {
		errs = append(errs, s.admin.Close(ctx))
	}
	if s.nats != nil {
		errs = append(errs, s.nats.Close())
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Close())
	}
	if s.pg != nil {
		errs = append(errs, s.pg.Close())
	}
	return errors.Join(errs...)
}

// brokerCPU is what the NATS server has used so far, unknown if it is the user's.
func (s *servers) brokerCPU() (figure, error) {
	if s.nats == nil {
		return unknown(), nil
	}
	return cpuOf(s.nats.PID())
}

// walsenderCPU is what the walsender of a slot has used so far, unknown if it runs elsewhere.
func (s *servers) walsenderCPU(ctx context.Context, slot string) (figure, error) {
	if s.pg == nil {
		return unknown(), nil
	}
	var pid int
	if err := s.admin.QueryRow(ctx, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1 AND active`, slot).Scan(&pid); err != nil {
		return 0, fmt.Errorf("nobody holds slot %s: %w", slot, err)
	}
	return cpuOf(pid)
}

// databaseURL is the URL of another database of the server.
func (s *servers) databaseURL(name string) (string, error) {
	u, err := url.Parse(s.pgURL)
	if err != nil || u.Scheme == "" {
		return "", errors.New("--pg: want a URL, postgres://user:password@host:5432/postgres say")
	}
	u.Path = "/" + name
	return u.String(), nil
}

// newName is a name for a database, a slot, a publication and a stream that is never the same twice.
func newName() string { return "relay_bench_" + strings.ToLower(rand.Text()[:8]) }
