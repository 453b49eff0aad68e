package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// DB begins transactions. *pgxpool.Pool is one.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Gap says what happens to an event whose number shows that one before it is missing.
type Gap uint8

// The choices. An event whose number has been passed already is a warning under GapAccept, and dead under the others.
const (
	GapAccept Gap = iota // it is handled, with a warning in the log
	GapWait              // it waits for the missing one, up to Config.GapPatience, and is dead then
	GapFail              // it is dead at once
)

// Defaults of a Config.
const (
	DefaultConcurrency = 8
	DefaultAttempts    = 10
	DefaultFirstPause  = 100 * time.Millisecond
	DefaultMaxPause    = 30 * time.Second
	DefaultGapPatience = time.Minute
	DefaultStopTimeout = 10 * time.Second
)

// Config says what a runner consumes, and how. A number of zero is the default.
type Config struct {
	// Consumer is a durable pull consumer with explicit acks, a bounded MaxAckPending and no MaxDeliver; see
	// [ConsumerConfig].
	Consumer jetstream.Consumer
	DB       DB
	Name     string // of this consumer in the tables: who has processed an event

	// Handle does what an event means to this service, in the transaction that notes the event as processed. When it fails
	// or panics the transaction is rolled back, and the event comes again after a pause. It must not commit or roll back
	// itself.
	Handle func(ctx context.Context, tx pgx.Tx, m Message) error

	Concurrency int // transactions at the same time
	Batch       int // events in one transaction; 0 or 1: each has its own

	Attempts   int           // that may fail, before an event is dead
	FirstPause time.Duration // after the first one; doubles with each
	MaxPause   time.Duration

	OnGap       Gap
	GapPatience time.Duration

	// Shared says that other processes consume from the same consumer. Then nobody waits for what was delivered elsewhere, and
	// events of one aggregate that are with two processes have no order.
	Shared bool

	StopTimeout time.Duration // how long a stopping runner waits for the handlers
	Log         *slog.Logger  // nil: slog.Default
}

// Errors of a Config that cannot work.
var (
	ErrConfig   = errors.New("want Consumer, DB, Name and Handle")
	ErrConsumer = errors.New("the consumer does not fit: make it with inbox.ConsumerConfig")
)

// ConsumerConfig returns the configuration of a consumer for a runner: durable, with explicit acks, and without a bound on
// deliveries, after which JetStream would pass over an event in silence. The ack wait is how long events of a runner that was
// killed wait for the next one; those of a running one do not depend on it.
func ConsumerConfig(name string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 10 * time.Second, MaxAckPending: 1000, MaxDeliver: -1,
	}
}

// runner is a running Run.
type runner struct {
	Config
	lanes  *lanes
	away   sync.Mutex      // held while somebody waits for the database
	ending <-chan struct{} // closed when the runner is told to stop
	gap    chan struct{}   // a delivery did not come here
}

// Run consumes until ctx ends, and returns nil then, after the handlers have. Before that it returns only what trying again
// cannot mend: ErrConfig, ErrConsumer, a consumer or a connection that is gone for good. A database that is away is waited
// for.
func Run(ctx context.Context, cfg Config) error {
	r := &runner{Config: cfg.withDefaults(), lanes: newLanes(), ending: ctx.Done(), gap: make(chan struct{}, 1)}
	info, err := r.check(ctx)
	if err != nil {
		return err
	}
	// Half as many again as are handled at once are here when a place gets free.
	messages, err := r.Consumer.Messages(jetstream.PullMaxMessages(min(info.Config.MaxAckPending, max(100, 2*r.Concurrency*r.Batch))))
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	if info.NumAckPending > 0 {
		r.elsewhere()
	}
	var workers, keeper sync.WaitGroup
	work, cancel := context.WithCancel(context.WithoutCancel(ctx)) // what is begun is finished
	defer cancel()
	for range r.Concurrency {
		workers.Go(func() { r.worker(work) })
	}
	kept, done := context.WithCancel(work)
	keeper.Go(func() { r.keep(kept, info.Config.AckWait/3) })
	keeper.Go(func() { r.guard(kept, info.Config.AckWait) })
	unhook := context.AfterFunc(ctx, messages.Stop)
	err = r.read(ctx, messages, info.Delivered.Consumer)
	unhook()
	messages.Stop()
	r.lanes.stop()
	limit := time.AfterFunc(r.StopTimeout, cancel)
	workers.Wait()
	limit.Stop()
	done()
	keeper.Wait()
	for _, d := range r.lanes.all() { // somebody else can have them at once
		_ = d.msg.Nak() // or when their ack deadline has passed
	}
	return err
}

func (cfg Config) withDefaults() Config {
	for _, d := range []struct {
		value *int
		zero  int
	}{{&cfg.Concurrency, DefaultConcurrency}, {&cfg.Batch, 1}, {&cfg.Attempts, DefaultAttempts}} {
		if *d.value <= 0 {
			*d.value = d.zero
		}
	}
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&cfg.FirstPause, DefaultFirstPause},
		{&cfg.MaxPause, DefaultMaxPause},
		{&cfg.GapPatience, DefaultGapPatience},
		{&cfg.StopTimeout, DefaultStopTimeout},
	} {
		if *d.value <= 0 {
			*d.value = d.zero
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return cfg
}

// check refuses what would lose events in silence, or have no bound.
func (r *runner) check(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	if r.Consumer == nil || r.DB == nil || r.Name == "" || r.Handle == nil {
		return nil, ErrConfig
	}
	info, err := r.Consumer.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the consumer: %w", err)
	}
	c := info.Config
	for _, unfit := range []struct {
		is   bool
		text string
	}{
		{c.Durable == "", "it is not durable: what it has seen is forgotten with it"},
		{c.AckPolicy != jetstream.AckExplicitPolicy, "its ack policy is not explicit"},
		{c.MaxDeliver > 0, fmt.Sprintf("after %d deliveries (max_deliver) JetStream passes over an event in silence", c.MaxDeliver)},
		{c.MaxAckPending <= 0, "max_ack_pending has no bound, and so would memory"},
	} {
		if unfit.is {
			return nil, fmt.Errorf("consumer %q: %s: %w", info.Name, unfit.text, ErrConsumer)
		}
	}
	return info, nil
}

// read takes what is delivered into the lanes, until ctx ends. number is that of the last delivery before.
func (r *runner) read(ctx context.Context, messages jetstream.MessagesContext, number uint64) error {
	pauses := r.newPauses()
	for {
		msg, err := messages.Next()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = msg.Nak()
			}
			return nil
		case errors.Is(err, jetstream.ErrMsgIteratorClosed), errors.Is(err, jetstream.ErrConsumerDeleted), errors.Is(err, jetstream.ErrConsumerNotFound),
			errors.Is(err, nats.ErrConnectionClosed):
			return fmt.Errorf("consume: %w", err)
		case err != nil: // a server that is away
			pause := pauses.NextBackOff()
			r.Log.Warn("no events come, trying again", "consumer", r.Name, "reason", err, "pause", pause)
			wait(r.ending, pause)
			continue
		}
		pauses.Reset()
		d, err := receive(msg)
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		// Attempts of another process may have ended with it. Two of those that are left are ours in any case: a delivery
		// is not always an attempt.
		d.attempts = max(0, min(d.attempts, r.Attempts-2))
		d.pauses = r.newPauses()
		if d.number > number+1 {
			r.elsewhere()
		}
		number = d.number
		r.lanes.put(d)
	}
}

func (r *runner) newPauses() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.RandomizationFactor, b.Multiplier, b.MaxInterval = r.FirstPause, 0.2, 2, r.MaxPause
	b.Reset()
	return b
}

// keep moves the ack deadline of everything that is here, so that JetStream does not deliver it to somebody else.
func (r *runner) keep(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		for _, d := range r.lanes.all() {
			if now.Sub(d.kept) < every {
				continue // most are done before
			}
			d.kept = now
			_ = d.msg.InProgress() // if it does not get through, the event is delivered again, and takes no effect then
		}
	}
}

// wait reports false if it was ended early.
func wait(ending <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ending:
		return false
	case <-timer.C:
		return true
	}
}
