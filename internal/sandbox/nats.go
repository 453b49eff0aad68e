package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSConfig configures a throwaway NATS server.
type NATSConfig struct {
	Port        int    // 0: a free one
	StoreDir    string // where streams are kept; empty: a folder that goes with the server
	MaxPayload  int32  // bytes; 0: the server's default, 1 MiB
	SyncAlways  bool   // sync every message to disk before it is acked
	NoJetStream bool   // plain NATS
	Username    string // empty: no authentication
	Password    string

	// Configure may change the server's options before each start. Only for [StartNATS].
	Configure func(*server.Options) `json:"-"`
	Logger    *slog.Logger          `json:"-"` // nil: discard
}

const (
	natsReadyLimit = 20 * time.Second // recovery of the streams included
	natsTries      = 5                // with another port each
)

// NATS is a NATS server in this process. It is safe for concurrent use.
type NATS struct {
	cfg    NATSConfig
	folder *folder // nil when the store is the caller's

	mu     sync.Mutex
	srv    *server.Server // the last one started
	closed bool
}

// StartNATS starts a NATS server in this process, with JetStream on files. ctx bounds the start, not its life.
func StartNATS(ctx context.Context, cfg NATSConfig) (*NATS, error) {
	n := &NATS{cfg: cfg}
	var err error
	n.folder, err = n.cfg.prepare(ctx)
	if err != nil {
		return nil, err
	}
	err = n.cfg.withPort(ctx, func() error { return n.Start(ctx) })
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// prepare fills in the logger and the store's folder, which it returns if it made one.
func (cfg *NATSConfig) prepare(ctx context.Context) (*folder, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.StoreDir != "" || cfg.NoJetStream {
		return nil, nil
	}
	dir, err := newFolder(ctx, account{}, cfg.Logger)
	if err != nil {
		return nil, err
	}
	cfg.StoreDir = dir.path
	return dir, nil
}

// withPort calls start with the port set, on other ports if it loses one that was chosen here.
func (cfg *NATSConfig) withPort(ctx context.Context, start func() error) error {
	if cfg.Port != 0 {
		return start()
	}
	for try := 1; ; try++ {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		cfg.Port = port
		err = start()
		if err == nil || try == natsTries || !portTaken(ctx, port) {
			return err
		}
	}
}

// url is where clients connect.
func (cfg *NATSConfig) url() string {
	auth := ""
	if cfg.Username != "" {
		auth = cfg.Username + ":" + cfg.Password + "@"
	}
	return fmt.Sprintf("nats://%s%s:%d", auth, loopback, cfg.Port)
}

// run starts a server and waits until it serves.
func (cfg *NATSConfig) run(ctx context.Context) (*server.Server, error) {
	opts := &server.Options{
		Host: loopback, Port: cfg.Port, NoSigs: true, MaxPayload: cfg.MaxPayload,
		JetStream: !cfg.NoJetStream, StoreDir: cfg.StoreDir, SyncAlways: cfg.SyncAlways,
		Username: cfg.Username, Password: cfg.Password,
	}
	if cfg.Configure != nil {
		cfg.Configure(opts)
	}
	if portTaken(ctx, cfg.Port) { // the server would only log it
		return nil, fmt.Errorf("start NATS: port %d is taken", cfg.Port)
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	log := &natsLog{log: cfg.Logger}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	err = poll(ctx, natsReadyLimit, func() (bool, error) {
		if err := log.fatal(); err != nil {
			return true, err
		}
		return srv.ReadyForConnections(time.Millisecond), nil
	})
	if err == nil && !cfg.NoJetStream && !srv.JetStreamEnabled() {
		err = errors.Join(errors.New("JetStream is off"), log.fatal())
	}
	if err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("start NATS on port %d: %w", cfg.Port, err)
	}
	return srv, nil
}

// Start starts the server again, on the same port and store. A server that runs is left as it is.
func (n *NATS) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errors.New("start NATS: it was closed")
	}
	if n.srv != nil && n.srv.Running() {
		return nil
	}
	srv, err := n.cfg.run(ctx)
	if err != nil {
		return err
	}
	n.srv = srv
	return nil
}

// Stop shuts the server down and waits until it has. The store stays.
func (n *NATS) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
}

func (n *NATS) stop() {
	if n.srv != nil {
		n.srv.Shutdown()
		n.srv.WaitForShutdown()
	}
}

// Close stops the server and removes its store, unless the store was given. It can be called more than once.
func (n *NATS) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	n.stop()
	if n.folder == nil {
		return nil
	}
	return n.folder.remove()
}

// URL is where clients connect, with the user and password if there are any. It stays the same across Stop and Start.
func (n *NATS) URL() string { return n.cfg.url() }

// Addr is host:port, for a proxy.
func (n *NATS) Addr() string { return fmt.Sprintf("%s:%d", loopback, n.cfg.Port) }

// Server is the server that was started last.
func (n *NATS) Server() *server.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.srv
}

// natsLog hands the server's log to slog and keeps the last fatal line: a server without a terminal reports a failed start
// in no other way. It is safe for concurrent use.
type natsLog struct {
	log *slog.Logger

	mu   sync.Mutex
	last error
}

func (l *natsLog) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *natsLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = fmt.Errorf(format, v...)
	l.log.Error(l.last.Error())
}

func (l *natsLog) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *natsLog) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l *natsLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *natsLog) Debugf(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *natsLog) Tracef(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
