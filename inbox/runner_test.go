package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// Aggregates are handled at the same time, the events of one in their order, whatever fails on the way: handlers that fail and
// panic, commits that fail, connections that are cut.
func TestRunOrder(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 20} {
		t.Run(fmt.Sprint("batch ", batch), func(t *testing.T) {
			t.Parallel()
			m := openMarket(t)
			const events, aggregates = 300, 7
			m.publishMany(events, aggregates)
			if _, err := m.pool.Exec(t.Context(), `CREATE TABLE sold (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)`); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			busy, most, tries := 0, 0, map[string]int{}
			m.start(Config{Batch: batch, Handle: func(ctx context.Context, tx pgx.Tx, msg Message) error {
				mu.Lock()
				busy++
				most = max(most, busy)
				tries[msg.ID]++
				try := tries[msg.ID]
				mu.Unlock()
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					busy--
				}()
				if err := effect(ctx, tx, msg); err != nil {
					return err
				}
				if try > 2 {
					return nil
				}
				switch rand.IntN(12) {
				case 0:
					return errors.New("out of stock")
				case 1:
					panic("out of mind")
				case 2: // fails at the commit
					_, err := tx.Exec(ctx, `INSERT INTO sold VALUES (1), (1)`)
					return err
				case 3:
					_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
					return err
				}
				return nil
			}})
			m.expect(events, aggregates)
			if most < 2 {
				t.Error("no two events were handled at the same time")
			}
		})
	}
}

// The ack is lost, or the runner dies before it: the event comes again and takes no effect.
func TestRunAckLost(t *testing.T) {
	t.Parallel()
	m := openMarket(t, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second })
	m.publishMany(20, 4)
	var lost atomic.Int64
	m.natsProxy.OnNATS(func(msg sandbox.NATSMessage) sandbox.Action {
		if msg.ToServer && strings.HasPrefix(msg.Subject, "$JS.ACK.") && msg.PayloadBytes > 0 && string(msg.Body) == "+ACK" && lost.Add(1) <= 5 {
			return sandbox.Drop
		}
		return sandbox.Forward
	})
	m.start(Config{})
	m.expect(20, 4)
	if lost.Load() <= 5 {
		t.Errorf("%d acks were seen", lost.Load())
	}
}

// Two handlers get the same event at once, because it was delivered again: one effect.
func TestRunSameEventAtOnce(t *testing.T) {
	t.Parallel()
	m := openMarket(t)
	m.publish("e0", "", 0)
	began, release := make(chan string, 2), make(chan struct{})
	m.start(Config{Handle: func(ctx context.Context, tx pgx.Tx, msg Message) error {
		began <- msg.ID
		select {
		case <-release:
		case <-ctx.Done():
		}
		return effect(ctx, tx, msg)
	}})
	<-began
	m.publishAgain("e0", "", 0)
	sandbox.WaitFor(t, limit, "the second waits for the first", func() (waits bool, err error) {
		err = m.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
		return waits, err
	})
	close(release)
	m.settled()
	if got := m.effects(""); !slices.Equal(got, []string{"e0"}) {
		t.Errorf("effects of %v", got)
	}
}

// publishAgain stores an event once more, after the duplicate window.
func (m *market) publishAgain(id, aggregate string, sequence int) {
	m.t.Helper()
	before := m.count()
	sandbox.WaitFor(m.t, limit, "the duplicate window passes", func() (bool, error) {
		m.publish(id, aggregate, sequence)
		return m.count() > before, nil
	})
}

func (m *market) count() uint64 {
	m.t.Helper()
	info, err := m.stream.Info(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return info.State.Msgs
}

// The database is away for a while: no event fails for that, and everything goes on by itself.
func TestRunDatabaseAway(t *testing.T) {
	t.Parallel()
	m := openMarket(t, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second })
	r := m.start(Config{Attempts: 2})
	m.publish("e0", "a0", 1)
	m.expect(1, 1)
	if err := m.pgProxy.Refuse(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	m.pgProxy.Cut()
	m.publish("e1", "a0", 2)
	m.publish("e2", "a0", 3)
	away := time.Now()
	sandbox.WaitFor(t, limit, "longer than the ack wait", func() (bool, error) { return time.Since(away) > 1500*time.Millisecond, nil })
	r.log.wait(t, "the database is away, trying again")
	if err := m.pgProxy.Refuse(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	m.expect(3, 1)
	if dead, err := Dead(t.Context(), m.pool, m.name, 10); err != nil || len(dead) > 0 {
		t.Errorf("dead: %v, %v", dead, err)
	}
	if n := strings.Count(r.log.String(), "the database is away"); n > 20 {
		t.Errorf("%d lines about one outage", n)
	}
}

// The broker is away for a while.
func TestRunBrokerAway(t *testing.T) {
	t.Parallel()
	m := openMarket(t, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second })
	m.start(Config{})
	m.publish("e0", "a0", 1)
	m.expect(1, 1)
	if err := m.natsProxy.Refuse(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	m.natsProxy.Cut()
	m.publish("e1", "a0", 2)
	if err := m.natsProxy.Refuse(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	m.expect(2, 1)
}

// After its last attempt an event is dead, with its reason, and what follows it goes on. It can be listed and retried.
func TestRunDead(t *testing.T) {
	t.Parallel()
	m := openMarket(t)
	m.publishMany(6, 2)
	outOfStock := errors.New("out of stock")
	var attempts atomic.Int64
	r := m.start(Config{Attempts: 3, Handle: func(ctx context.Context, tx pgx.Tx, msg Message) error {
		if msg.ID == "e2" {
			attempts.Add(1)
			return outOfStock
		}
		return effect(ctx, tx, msg)
	}})
	m.settled()
	if got := m.effects("a0"); !slices.Equal(got, []string{"e0", "e4"}) {
		t.Errorf("effects of %v", got)
	}
	if attempts.Load() != 3 {
		t.Errorf("%d attempts", attempts.Load())
	}
	if strings.Contains(r.log.String(), "one after the other") {
		t.Error("the event after a dead one counts as a gap")
	}
	dead, err := Dead(t.Context(), m.pool, m.name, 10)
	if err != nil || len(dead) != 1 {
		t.Fatalf("%v, %v", dead, err)
	}
	d := dead[0]
	if d.ID != "e2" || d.AggregateID != "a0" || d.Sequence != 2 || string(d.Data) != `{"n":1}` || d.Reason != outOfStock.Error() || d.Attempts != 3 || d.StreamSequence != 3 {
		t.Errorf("%+v", d)
	}
	if err := Retry(t.Context(), m.pool, m.name, "e2", func(context.Context, pgx.Tx, Message) error { return outOfStock }); !errors.Is(err, outOfStock) {
		t.Errorf("a retry that fails: %v", err)
	}
	if err := Retry(t.Context(), m.pool, m.name, "e2", effect); err != nil {
		t.Error(err)
	}
	if err := Retry(t.Context(), m.pool, m.name, "e2", effect); !errors.Is(err, ErrNotDead) {
		t.Errorf("a second retry: %v", err)
	}
	if got := m.effects("a0"); !slices.Equal(got, []string{"e0", "e4", "e2"}) {
		t.Errorf("effects of %v", got)
	}
	m.publishAgain("e2", "a0", 2) // as if the termination had been lost
	m.settled()
	if attempts.Load() != 3 {
		t.Errorf("a dead event was handled again")
	}
}

// A message without an id cannot be told from its second delivery: it is dead. One of another publisher, with an id, is handled.
func TestRunForeignMessages(t *testing.T) {
	t.Parallel()
	m := openMarket(t)
	m.publish("", "", 0)
	m.publish("e1", "", 0)
	m.start(Config{})
	m.settled()
	if got := m.effects(""); !slices.Equal(got, []string{"e1"}) {
		t.Errorf("effects of %v", got)
	}
	dead, err := Dead(t.Context(), m.pool, m.name, 10)
	if err != nil || len(dead) != 1 || dead[0].ID != m.name+":1" || !strings.Contains(dead[0].Reason, "no Nats-Msg-Id") {
		t.Errorf("dead: %+v, %v", dead, err)
	}
}

// Long work moves its ack deadline: nobody else gets the event meanwhile.
func TestRunLongWork(t *testing.T) {
	t.Parallel()
	m := openMarket(t, func(c *jetstream.ConsumerConfig) { c.AckWait = 500 * time.Millisecond })
	m.publishMany(2, 1)
	var handled atomic.Int64
	began := time.Now()
	handle := func(ctx context.Context, tx pgx.Tx, msg Message) error {
		handled.Add(1)
		for time.Since(began) < 2*time.Second { // the second event waits behind the first
			if _, err := tx.Exec(ctx, `SELECT pg_sleep(0.05)`); err != nil {
				return err
			}
		}
		return effect(ctx, tx, msg)
	}
	m.start(Config{Handle: handle, Shared: true})
	m.start(Config{Handle: handle, Shared: true})
	m.expect(2, 1)
	if handled.Load() != 2 {
		t.Errorf("2 events were handled %d times", handled.Load())
	}
}

// A stopping runner finishes what it has begun, and gives the rest back at once.
func TestRunStop(t *testing.T) {
	t.Parallel()
	m := openMarket(t, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour })
	m.publishMany(20, 1)
	began, release := make(chan struct{}, 20), make(chan struct{})
	first := m.start(Config{Handle: func(ctx context.Context, tx pgx.Tx, msg Message) error {
		began <- struct{}{}
		<-release
		return effect(ctx, tx, msg)
	}})
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- first.stop() }()
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if n := len(m.effects("")); n < 1 || n == 20 {
		t.Errorf("%d effects of the first one", n)
	}
	m.start(Config{})
	m.expect(20, 1) // long before the ack deadline
}

// A handler that does not end is cut off.
func TestRunStopTimeout(t *testing.T) {
	t.Parallel()
	m := openMarket(t)
	m.publish("e0", "a0", 1)
	began := make(chan struct{})
	r := m.start(Config{StopTimeout: 50 * time.Millisecond, Handle: func(ctx context.Context, _ pgx.Tx, _ Message) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	}})
	<-began
	at := time.Now()
	if err := r.stop(); err != nil || time.Since(at) > 5*time.Second {
		t.Errorf("%v after %s", err, time.Since(at))
	}
	m.start(Config{})
	m.expect(1, 1)
}

// What would lose events in silence is refused.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*jetstream.ConsumerConfig){
		"max_deliver":     func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 },
		"ack policy":      func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy },
		"max_ack_pending": func(c *jetstream.ConsumerConfig) { c.MaxAckPending = -1 },
		"not durable":     func(c *jetstream.ConsumerConfig) { c.Name, c.Durable = c.Durable, "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := openMarket(t, change)
			consumer, err := m.js.Consumer(t.Context(), m.name, m.name)
			if err != nil {
				t.Fatal(err)
			}
			err = Run(t.Context(), Config{Consumer: consumer, DB: m.pool, Name: "x", Handle: effect})
			if !errors.Is(err, ErrConsumer) || !strings.Contains(err.Error(), name) {
				t.Error(err)
			}
		})
	}
	if err := Run(t.Context(), Config{}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

// A consumer that is deleted ends the runner with an error.
func TestRunConsumerDeleted(t *testing.T) {
	t.Parallel()
	m := openMarket(t)
	consumer, err := m.js.Consumer(t.Context(), m.name, m.name)
	if err != nil {
		t.Fatal(err)
	}
	m.publish("e0", "a0", 1)
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), Config{Consumer: consumer, DB: m.pool, Name: m.name, Handle: effect})
	}()
	m.settled()
	if err := m.stream.DeleteConsumer(t.Context(), m.name); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, jetstream.ErrConsumerDeleted) {
			t.Error(err)
		}
	case <-time.After(limit):
		t.Error("it goes on")
	}
}

// Each of many events is delivered twice and takes effect once.
func TestRunDeliveredTwice(t *testing.T) {
	t.Parallel()
	events := 10_000
	if testing.Short() {
		events = 500
	}
	m := openMarket(t)
	const aggregates = 50
	for range 2 {
		for i := range events {
			_, err := m.js.PublishMsgAsync(m.message(fmt.Sprint("e", i), fmt.Sprint("a", i%aggregates), 1+i/aggregates), jetstream.WithStallWait(limit))
			if err != nil {
				t.Fatal(err)
			}
		}
		<-m.js.PublishAsyncComplete()
		published := time.Now()
		sandbox.WaitFor(t, limit, "the duplicate window passes", func() (bool, error) { return time.Since(published) > 200*time.Millisecond, nil })
	}
	if n := m.count(); n != uint64(2*events) {
		t.Fatalf("%d messages", n)
	}
	m.start(Config{Batch: 50, OnGap: GapAccept})
	m.expect(events, aggregates)
}

// Events that were delivered to a runner that died come again after what follows them: that waits for them.
func TestRunOrderAfterDeath(t *testing.T) {
	t.Parallel()
	m := openMarket(t, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second })
	m.publishMany(20, 2)
	consumer, err := m.stream.Consumer(t.Context(), m.name)
	if err != nil {
		t.Fatal(err)
	}
	if batch, err := consumer.Fetch(7); err != nil { // and dies
		t.Fatal(err)
	} else {
		for range batch.Messages() {
		}
	}
	m.start(Config{})
	m.expect(20, 2)
}

// The same when deliveries are lost with a connection.
func TestRunOrderAfterCut(t *testing.T) {
	t.Parallel()
	m := openMarket(t, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second })
	var lost atomic.Int64
	m.natsProxy.OnNATS(func(msg sandbox.NATSMessage) sandbox.Action {
		if !msg.ToServer && msg.Op == "HMSG" && strings.HasPrefix(msg.Subject, m.name+".") {
			switch n := lost.Add(1); {
			case n > 4 && n < 8:
				return sandbox.Drop
			case n == 8:
				return sandbox.CutConnection
			}
		}
		return sandbox.Forward
	})
	r := m.start(Config{})
	m.publishMany(40, 2)
	m.expect(40, 2)
	if lost.Load() < 8 || !strings.Contains(r.log.String(), "delivered before and are not done") {
		t.Errorf("%d deliveries, nothing was noticed", lost.Load())
	}
}
