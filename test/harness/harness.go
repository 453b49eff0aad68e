// Package harness sets up a whole relay for a test: a database with its outbox, a stream, a slot, all made by the relay's
// own commands, and relays as processes or inside the test. Faults come from its proxies.
package harness

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/app"
	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// Limit is how long anything may take that should happen at once.
const Limit = 30 * time.Second

const childEnv = "RELAY_TEST_CHILD"

// Run is the body of a TestMain: os.Exit(harness.Run(m)). In a process that Relay started it is the relay itself.
func Run(m *testing.M) int {
	if os.Getenv(childEnv) == "relay" {
		return app.Main(append([]string{"relay"}, os.Args[1:]...), os.Stdout, os.Stderr, os.Environ())
	}
	return sandbox.Run(m)
}

// Config changes the world of a test from the usual one.
type Config struct {
	Postgres *sandbox.Postgres // nil: the shared server
	NATSURL  string            // "": the shared server
	NATSAddr string            // of NATSURL, for the proxy

	Table  string   // as for --table; "": public.outbox
	DDL    []string // makes the table and more; nil: relay outbox create
	Stream func(*jetstream.StreamConfig)
	NoSlot bool
	Flags  []string // added to every relay command that knows them: --subject, ...
}

// World is one relay's surroundings.
type World struct {
	t testing.TB

	Database    string // URL, direct
	Conn        *pgx.Conn
	NC          *nats.Conn
	JS          jetstream.JetStream
	Slot        string
	Publication string
	Table       string
	StreamName  string
	flags       []string

	password  string         // no output may show it
	PGProxy   *sandbox.Proxy // between relays and PostgreSQL
	NATSProxy *sandbox.Proxy // between relays and NATS
	databaseV string         // URL through the proxy
	natsV     string
}

// New makes a world.
func New(t testing.TB, cfg Config) *World {
	t.Helper()
	pg := cfg.Postgres
	if pg == nil {
		pg = sandbox.PG(t)
	}
	if cfg.NATSURL == "" {
		server := sandbox.JetStream(t)
		cfg.NATSURL, cfg.NATSAddr = server.URL(), server.Addr()
	}
	w := &World{
		t: t, Database: sandbox.DatabaseOn(t, pg), Slot: sandbox.Name(t), Table: cfg.Table, StreamName: sandbox.Name(t), flags: cfg.Flags,
	}
	w.Publication, w.password = w.Slot, pg.Password()
	if w.Table == "" {
		w.Table = "public.outbox"
	}
	w.PGProxy, w.NATSProxy = Proxy(t, pg.Addr()), Proxy(t, cfg.NATSAddr)
	w.databaseV = strings.Replace(w.Database, pg.Addr(), w.PGProxy.Addr(), 1)
	w.natsV = strings.Replace(cfg.NATSURL, cfg.NATSAddr, w.NATSProxy.Addr(), 1)
	w.connect(cfg.NATSURL)
	w.setUp(cfg)
	return w
}

// Proxy starts a proxy that ends with the test.
func Proxy(t testing.TB, target string) *sandbox.Proxy {
	t.Helper()
	p, err := sandbox.StartProxy(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func (w *World) connect(natsURL string) {
	w.t.Helper()
	var err error
	if w.Conn, err = pgx.Connect(w.t.Context(), w.Database); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.Conn.Close(context.Background()) })
	if w.NC, err = nats.Connect(natsURL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.NC.Close)
	if w.JS, err = jetstream.New(w.NC); err != nil {
		w.t.Fatal(err)
	}
}

func (w *World) setUp(cfg Config) {
	w.t.Helper()
	if cfg.DDL == nil {
		w.MustDo("outbox", "create")
	}
	for _, ddl := range cfg.DDL {
		w.Exec(ddl)
	}
	stream := jetstream.StreamConfig{Name: w.StreamName, Subjects: []string{w.Subjects()}, Discard: jetstream.DiscardNew}
	if cfg.Stream != nil {
		cfg.Stream(&stream)
	}
	if _, err := w.JS.CreateStream(w.t.Context(), stream); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Limit)
		defer cancel()
		_ = w.JS.DeleteStream(ctx, w.StreamName) // some tests delete it themselves
	})
	if !cfg.NoSlot {
		w.MustDo("slot", "create")
	}
}

// Subject returns the subject of a topic. It has the stream's name in it: streams of one server may not share subjects.
func (w *World) Subject(topic string) string { return w.StreamName + "." + topic }

// Subjects returns the pattern of all subjects.
func (w *World) Subjects() string { return w.Subject(">") }

// flagsFor returns the flags that a command of the relay gets, so that it works in this world.
func (w *World) flagsFor(command []string) []string {
	database, slot := []string{"--database-url", w.databaseV}, []string{"--slot", w.Slot}
	table := []string{"--publication", w.Publication, "--table", w.Table}
	broker := []string{"--nats-url", w.natsV, "--stream", w.StreamName, "--subject", w.Subject("{topic}")}
	var groups [][]string
	switch strings.Join(command[:min(len(command), 2)], " ") {
	case "outbox create":
		groups = [][]string{database, table[2:]}
	case "slot create":
		groups = [][]string{database, slot, table}
	case "slot drop":
		groups = [][]string{database, slot}
	case "slot list":
		groups = [][]string{database}
	case "stream create":
		groups = [][]string{broker}
	default: // run, status
		groups = [][]string{database, slot, table, broker}
	}
	return append(slices.Concat(groups...), w.flags...)
}

// Args returns the whole command line of a command in this world, without the program's name.
func (w *World) Args(command ...string) []string {
	words := 1
	if len(command) > 1 && !strings.HasPrefix(command[1], "-") {
		words = 2
	}
	args := append([]string{}, command[:words]...)
	args = append(args, w.flagsFor(command)...)
	return append(args, command[words:]...)
}

// Do runs a command of the relay inside the test.
func (w *World) Do(command ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	var out, errs bytes.Buffer
	args := append([]string{"relay"}, w.Args(command...)...)
	code = app.Run(w.t.Context(), args, &out, &errs, nil)
	if strings.Contains(out.String()+errs.String(), w.password) {
		w.t.Errorf("relay %s showed the password", strings.Join(command, " "))
	}
	return code, out.String(), errs.String()
}

// MustDo runs a command that has to exit 0, and returns what it answered.
func (w *World) MustDo(command ...string) string {
	w.t.Helper()
	code, stdout, stderr := w.Do(command...)
	if code != 0 {
		w.t.Fatalf("relay %s: exit %d\n%s%s", strings.Join(command, " "), code, stdout, stderr)
	}
	return stdout
}

// Exec runs a statement.
func (w *World) Exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.Conn.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// ConfirmedLSN returns what the slot has confirmed.
func (w *World) ConfirmedLSN() pglogrepl.LSN {
	w.t.Helper()
	return w.LSN("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = $1", w.Slot)
}

// LSN returns the LSN that a query answers.
func (w *World) LSN(sql string, args ...any) pglogrepl.LSN {
	w.t.Helper()
	var text string
	if err := w.Conn.QueryRow(w.t.Context(), "SELECT ("+sql+")::text", args...).Scan(&text); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return lsn
}

// WaitConfirmed waits until the slot has confirmed everything that is flushed now.
func (w *World) WaitConfirmed() {
	w.t.Helper()
	now := w.LSN("SELECT pg_current_wal_flush_lsn()")
	sandbox.WaitFor(w.t, Limit, "confirmed LSN reaches "+now.String(), func() (bool, error) {
		return w.ConfirmedLSN() >= now, nil
	})
}

// Relay is a relay process.
type Relay struct {
	*sandbox.Process
	t   testing.TB
	log *lockedBuffer
}

// Start runs `relay run` as a process of its own; it is killed at the end of the test.
func (w *World) Start(flags ...string) *Relay {
	w.t.Helper()
	return w.StartCommand(append([]string{"run", "--log-level=debug", "--listen="}, flags...)...)
}

// StartCommand starts a relay command that goes on until it is told to stop. Its log is all that it prints.
func (w *World) StartCommand(command ...string) *Relay {
	w.t.Helper()
	log := &lockedBuffer{}
	p, err := sandbox.StartProcess(w.t.Context(), sandbox.ProcessConfig{
		Args: w.Args(command...), Env: []string{childEnv + "=relay"}, Stdout: log, Stderr: log,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r := &Relay{Process: p, t: w.t, log: log}
	w.t.Cleanup(func() {
		_ = p.Close()
		if w.t.Failed() {
			w.t.Logf("relay %d:\n%s", p.PID(), lastLines(log.String(), 200))
		}
		if strings.Contains(log.String(), "goroutine ") || strings.Contains(log.String(), "DATA RACE") {
			w.t.Errorf("relay %d printed a stack trace:\n%s", p.PID(), log.String())
		}
		if strings.Contains(log.String(), w.password) {
			w.t.Errorf("relay %d showed the password", p.PID())
		}
	})
	return r
}

// Log returns what the relay has printed.
func (r *Relay) Log() string { return r.log.String() }

// WaitLog waits until the relay has printed a text.
func (r *Relay) WaitLog(text string) {
	r.t.Helper()
	sandbox.WaitFor(r.t, Limit, "relay prints "+text, func() (bool, error) { return strings.Contains(r.Log(), text), nil })
}

// Stop asks the relay to stop and returns its exit code.
func (r *Relay) Stop() int {
	r.t.Helper()
	if err := r.Signal(os.Interrupt); err != nil {
		r.t.Fatal(err)
	}
	return r.Exit()
}

// Exit waits for the relay's end and returns its exit code.
func (r *Relay) Exit() int {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	code, err := r.Wait(ctx)
	if err != nil {
		r.t.Fatalf("relay did not exit: %v", err)
	}
	return code
}

// Crash kills the relay the hard way and waits for its end.
func (r *Relay) Crash() {
	r.t.Helper()
	if err := r.Kill(); err != nil {
		r.t.Fatal(err)
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// lockedBuffer is a buffer that a process writes and a test reads.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
