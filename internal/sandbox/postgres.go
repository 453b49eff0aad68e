package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// PostgresConfig configures a throwaway PostgreSQL.
type PostgresConfig struct {
	Major    int               // 14 to 18; 0: any that is installed, else the newest that can be downloaded
	Settings map[string]string // server settings, over the defaults of this package
	Logger   *slog.Logger      // nil: discard
}

// StopMode is how PostgreSQL shuts down.
type StopMode syscall.Signal

// The shutdown modes of PostgreSQL.
const (
	Smart     = StopMode(syscall.SIGTERM) // waits for the clients to leave
	Fast      = StopMode(syscall.SIGINT)  // ends the clients; waits for walsenders to have sent everything
	Immediate = StopMode(syscall.SIGQUIT) // leaves without a checkpoint, as after a crash
)

// Superuser is the name of the superuser of every throwaway PostgreSQL.
const Superuser = "postgres"

const (
	dataFolder   = "data"
	socketFolder = "s"
	logFile      = "postgres.log"
	passwordFile = "password"

	startLimit = 60 * time.Second // recovery after an immediate stop included
	stopLimit  = 10 * time.Second // of Close
	startTries = 5                // with another port each
)

// Postgres is a throwaway PostgreSQL. It is safe for concurrent use.
type Postgres struct {
	bin      binaries
	acc      account
	folder   *folder
	port     int
	password string
	log      *slog.Logger

	mu     sync.Mutex
	proc   *Process // the last one started; nil before the first
	closed bool
}

// StartPostgres makes and starts a PostgreSQL with logical decoding on, fsync off and scram-sha-256 passwords on all
// connections. ctx bounds the start, not the life of the server. The error is [ErrNoPostgres] when there are no binaries.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	acc, err := serverAccount()
	if err != nil {
		return nil, err
	}
	bin, err := findBinaries(ctx, cfg.Major, acc, cfg.Logger)
	if err != nil {
		return nil, err
	}
	dir, err := newFolder(ctx, acc, cfg.Logger)
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: bin, acc: acc, folder: dir, password: rand.Text(), log: cfg.Logger}
	if err := p.create(ctx, cfg.Settings); err != nil {
		return nil, errors.Join(fmt.Errorf("create a PostgreSQL %s: %w", bin.version, err), p.Close())
	}
	if err := p.startAnywhere(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// create runs initdb and writes the settings.
func (p *Postgres) create(ctx context.Context, settings map[string]string) error {
	for _, name := range []string{dataFolder, socketFolder} {
		if err := os.Mkdir(p.folder.join(name), 0o700); err != nil {
			return err
		}
		if err := p.acc.own(p.folder.join(name)); err != nil {
			return err
		}
	}
	pwfile := p.folder.join(passwordFile)
	if err := os.WriteFile(pwfile, []byte(p.password), 0o600); err != nil {
		return err
	}
	if err := p.acc.own(pwfile); err != nil {
		return err
	}
	if err := p.initdb(ctx, pwfile); err != nil {
		return err
	}

	merged := map[string]string{
		"wal_level":                "logical",
		"max_wal_senders":          "50",
		"max_replication_slots":    "50",
		"max_connections":          "200",
		"fsync":                    "off",
		"log_connections":          "on",
		"log_replication_commands": "on",
		"log_line_prefix":          "%m [%p] %q%u@%d %a ",
		"listen_addresses":         loopback,
		"unix_socket_directories":  p.SocketDir(),
		// Shared memory in files of the data folder: POSIX segments would outlive a server that was killed.
		"dynamic_shared_memory_type": "mmap",
	}
	maps.Copy(merged, settings)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		fmt.Fprintf(&text, "%s = %s\n", name, literal(merged[name]))
	}
	conf, err := os.OpenFile(filepath.Join(p.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString(text.String())
	return errors.Join(err, conf.Close())
}

func (p *Postgres) initdb(ctx context.Context, pwfile string) error {
	proc, err := StartProcess(ctx, ProcessConfig{
		Path: filepath.Join(p.bin.dir, "initdb"),
		Args: []string{
			"-D", p.data(), "-U", Superuser, "--pwfile", pwfile, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C",
			"-T", "english", "--no-sync", "--no-instructions",
		},
		Env: serverEnv(), onlyEnv: true, Dir: p.folder.path, credential: p.acc.credential,
	})
	if err != nil {
		return err
	}
	code, err := proc.Wait(ctx)
	if err != nil {
		return errors.Join(err, proc.Close())
	}
	if code != 0 {
		return fmt.Errorf("initdb: exit code %d: %s", code, strings.TrimSpace(proc.Tail()))
	}
	return nil
}

// serverEnv is the whole environment of the server's programs: nobody's PG* or LC_* variables.
func serverEnv() []string { return []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")} }

// literal quotes a value as SQL and the configuration file want it.
func literal(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }

// startAnywhere starts the server on a free port.
func (p *Postgres) startAnywhere(ctx context.Context) error {
	for try := 1; ; try++ {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		p.port = port
		err = p.Start(ctx)
		if err == nil || try == startTries || !portTaken(ctx, port) {
			return err
		}
		p.log.DebugContext(ctx, "port was taken", "port", port, "err", err)
	}
}

func (p *Postgres) data() string { return p.folder.join(dataFolder) }

// URL is the connection string of the superuser for a database, without TLS.
func (p *Postgres) URL(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(Superuser, p.password),
		Host: net.JoinHostPort(p.Host(), strconv.Itoa(p.port)), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Addr is host:port, for a proxy.
func (p *Postgres) Addr() string { return net.JoinHostPort(p.Host(), strconv.Itoa(p.port)) }

// Host is the address that the server listens on.
func (p *Postgres) Host() string { return loopback }

// Port is the server's TCP port. It stays the same across Stop and Start.
func (p *Postgres) Port() int { return p.port }

// Password is that of [Superuser].
func (p *Postgres) Password() string { return p.password }

// SocketDir is the folder of the Unix socket. It asks for the password too.
func (p *Postgres) SocketDir() string { return p.folder.join(socketFolder) }

// Major is the major version.
func (p *Postgres) Major() int { return p.bin.major }

// Version is the version as the server says it, e.g. 15.18.
func (p *Postgres) Version() string { return p.bin.version }

// LogPath is the server's log file.
func (p *Postgres) LogPath() string { return p.folder.join(logFile) }

// Log is all that the server has logged.
func (p *Postgres) Log() (string, error) {
	text, err := os.ReadFile(p.LogPath())
	return string(text), err
}

// PID is the process id of the server that was started last, 0 before the first.
func (p *Postgres) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return 0
	}
	return p.proc.PID()
}
