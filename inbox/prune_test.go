package inbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func (m *market) prune(cfg PruneConfig) (int64, error) {
	m.t.Helper()
	var err error
	if cfg.Consumer, err = m.stream.Consumer(m.t.Context(), m.name); err != nil {
		m.t.Fatal(err)
	}
	cfg.DB, cfg.Name, cfg.Stream = m.pool, m.name, m.stream
	return Prune(m.t.Context(), cfg)
}

// age makes everything that was processed look older.
func (m *market) age(by time.Duration) {
	m.t.Helper()
	_, err := m.pool.Exec(m.t.Context(), `UPDATE `+Table+` SET processed_at = processed_at - $1 * interval '1 second'`, by.Seconds())
	if err != nil {
		m.t.Fatal(err)
	}
}

// An age within which an event can be delivered again is refused: the inequality protects, not luck.
func TestPruneRefuses(t *testing.T) {
	t.Parallel()
	m := openMarket(t)
	m.publishMany(3, 1)
	first := m.start(Config{})
	m.expect(3, 1)
	m.age(30 * time.Minute)
	if n, err := m.prune(PruneConfig{OlderThan: 10 * time.Minute}); !errors.Is(err, ErrTooYoung) || n != 0 || !strings.Contains(err.Error(), "1h1m0s") {
		t.Errorf("the stream keeps an hour: %d, %v", n, err)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	// Somebody makes the consumer anew, and everything comes again.
	if err := m.stream.DeleteConsumer(t.Context(), m.name); err != nil {
		t.Fatal(err)
	}
	if _, err := m.stream.CreateConsumer(t.Context(), ConsumerConfig(m.name)); err != nil {
		t.Fatal(err)
	}
	m.start(Config{})
	m.expect(3, 1)

	if _, err := m.stream.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := m.stream.CachedInfo().Config
	cfg.MaxAge = 0
	var err error
	if m.stream, err = m.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := m.prune(PruneConfig{OlderThan: 1000 * time.Hour}); !errors.Is(err, ErrTooYoung) || !strings.Contains(err.Error(), "without a max age") {
		t.Errorf("the stream keeps everything: %v", err)
	}
	m.age(30 * time.Minute)
	if n, err := m.prune(PruneConfig{OlderThan: 10 * time.Minute, NoReplay: true}); err != nil || n != 3 {
		t.Errorf("no replay: %d, %v", n, err)
	}
}

// What was processed and not acked stays, however long ago that was: it will be delivered again.
func TestPruneKeepsWhatIsNotAcked(t *testing.T) {
	t.Parallel()
	m := openMarket(t, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second })
	m.publishMany(2, 1)
	r := m.start(Config{})
	m.expect(2, 1)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	// A runner that dies between commit and ack.
	m.publish("e2", "a0", 3)
	consumer, err := m.stream.Consumer(t.Context(), m.name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := consumer.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.pool.Exec(t.Context(), claim, m.name, "e2"); err != nil {
		t.Fatal(err)
	}
	m.age(30 * time.Second) // less than the margin for the clocks
	if n, err := m.prune(PruneConfig{OlderThan: time.Second, NoReplay: true}); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	m.start(Config{})
	m.settled()
	if got := len(m.effects("")); got != 2 {
		t.Errorf("%d effects, want 2: the third event had its own before", got)
	}
	m.age(2 * time.Hour)
	if n, err := m.prune(PruneConfig{OlderThan: 2 * time.Hour}); err != nil || n != 3 {
		t.Errorf("all acked: %d, %v", n, err)
	}
}

// Old rows go in pieces while consuming goes on.
func TestPruneWhileConsuming(t *testing.T) {
	t.Parallel()
	m := openMarket(t)
	const old = 50_000
	_, err := m.pool.Exec(t.Context(), `INSERT INTO `+Table+` (consumer, event_id, processed_at)
		SELECT consumer, 'old' || i, now() - interval '1 day' FROM generate_series(1, $2) i, (VALUES ($1), ('other')) c (consumer)`, m.name, old)
	if err != nil {
		t.Fatal(err)
	}
	m.start(Config{})
	const events, aggregates = 200, 5
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.publishMany(events, aggregates)
	}()
	n, err := m.prune(PruneConfig{OlderThan: 2 * time.Hour})
	<-done
	if err != nil || n != old {
		t.Errorf("%d rows deleted, want %d: %v", n, old, err)
	}
	m.expect(events, aggregates)
	var left string
	err = m.pool.QueryRow(t.Context(), `SELECT string_agg(consumer || ' ' || n, ', ' ORDER BY consumer = 'other') FROM
		(SELECT consumer, count(*) n FROM `+Table+` GROUP BY 1) c`).Scan(&left)
	if want := fmt.Sprintf("%s %d, other %d", m.name, events, old); err != nil || left != want {
		t.Errorf("left: %s, want %s (%v)", left, want, err)
	}
}
