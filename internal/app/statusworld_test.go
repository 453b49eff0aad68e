package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// world is an outbox with a slot and a stream on real servers, named for one test.
type world struct {
	t            *testing.T
	env          []string
	slot, stream string
	database     string
	conn         *pgx.Conn
}

// newWorld makes one on the shared servers; more are flags of outbox create.
func newWorld(t *testing.T, more ...string) *world {
	t.Helper()
	return newWorldOn(t, sandbox.Database(t), sandbox.JetStream(t).URL(), more...)
}

func newWorldOn(t *testing.T, database, nats string, more ...string) *world {
	t.Helper()
	name := sandbox.Name(t)
	w := &world{t: t, slot: name, stream: strings.ToUpper(name)}
	w.env = []string{
		"DATABASE_URL=" + database, "NATS_URL=" + nats, "RELAY_SLOT=" + w.slot, "RELAY_STREAM=" + w.stream,
		"RELAY_SUBJECT=" + strings.ToLower(w.stream) + ".{topic}", "RELAY_RELAY=", // another test's relay may have the default port
	}
	for _, args := range []string{strings.Join(append([]string{"outbox create"}, more...), " "), "slot create", "stream create"} {
		w.must(args)
	}
	w.database = database
	w.reconnect()
	return w
}

// reconnect ends the test's session and begins another.
func (w *world) reconnect() {
	w.t.Helper()
	if w.conn != nil {
		_ = w.conn.Close(w.t.Context())
	}
	conn, err := pgx.Connect(w.t.Context(), w.database)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(w.t.Context())) })
	w.conn = conn
}

func (w *world) must(args string) result {
	w.t.Helper()
	got := relay(w.t, w.env, args)
	if got.code != exitOK {
		w.t.Fatalf("relay %s: %+v", args, got)
	}
	return got
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.conn.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) insert(n int) {
	w.t.Helper()
	w.exec(`INSERT INTO outbox (id, topic, payload) SELECT gen_random_uuid(), 'order.created', '{}' FROM generate_series(1, $1)`, n)
}

// background is a command that runs on.
type background struct {
	stop func() int // ends it and returns its exit code
	out  *syncBuffer
	log  *syncBuffer
}

// start runs a command until its stop is called.
func (w *world) start(args ...string) *background {
	w.t.Helper()
	ctx, cancel := context.WithCancelCause(w.t.Context())
	b := &background{out: &syncBuffer{}, log: &syncBuffer{}}
	ended := make(chan int, 1)
	go func() { ended <- Run(ctx, append([]string{"relay"}, args...), b.out, b.log, w.env) }()
	b.stop = sync.OnceValue(func() int {
		cancel(errors.New("the test is over"))
		return <-ended
	})
	w.t.Cleanup(func() { b.stop() })
	return b
}

// startRelay runs a relay that listens, and returns its URL.
func (w *world) startRelay(args ...string) (b *background, url string) {
	w.t.Helper()
	b = w.start(append([]string{"run", "--listen=127.0.0.1:0"}, args...)...)
	found := regexp.MustCompile(`url=(http://\S+)`)
	sandbox.WaitFor(w.t, 20*time.Second, "the relay says where it listens", func() (bool, error) {
		if m := found.FindStringSubmatch(b.log.String()); m != nil {
			url = m[1]
		}
		return url != "", errors.New(b.log.String())
	})
	return b, url
}

func (b *background) waitFor(t *testing.T, from fmt.Stringer, text string) {
	t.Helper()
	sandbox.WaitFor(t, 20*time.Second, fmt.Sprintf("%q is said", text), func() (bool, error) {
		return strings.Contains(from.String(), text), errors.New(b.out.String() + b.log.String())
	})
}

// syncBuffer may be written and read at a time.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*syncBuffer)(nil)

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
