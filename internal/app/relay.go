package app

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/pump"
)

// pumpConfig is the relay's configuration as the pump wants it, where zero is the default and not a value.
func (cfg runConfig) pumpConfig() pump.Config {
	yieldAfter := cfg.yieldAfter
	if yieldAfter == 0 {
		yieldAfter = -1
	}
	return pump.Config{
		Slot: cfg.slot,
		Publisher: publisher.Config{
			Conn: cfg.nats, Stream: cfg.stream, Template: cfg.subject,
			Window: cfg.window, WindowBytes: cfg.windowBytes, AckTimeout: cfg.ackTimeout, Skip: cfg.skip,
		},
		SessionTimeout: cfg.sessionTimeout, DrainTimeout: cfg.drainTimeout,
		YieldAfter: yieldAfter, ConfirmDelay: cfg.confirmDelay,
	}
}

// run relays until a signal, or until something that trying again cannot mend.
func (cfg runConfig) run(ctx context.Context) error {
	config := cfg.pumpConfig()
	if err := config.Validate(); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	listener, err := cfg.listenHTTP(ctx)
	if err != nil {
		return err
	}
	figures, past, trouble := newMetrics(), &history{}, &failures{}
	config.Observe = func(d time.Duration) {
		figures.observe(d)
		past.observe(d)
	}
	cfg.log = trouble.watch(cfg.log)
	relay := pump.New(config, cfg.database, cfg.log)
	figures.of(relay.Status)
	old := &keeper{cfg: cfg, status: relay.Status}
	old.register(figures.registry)
	defer past.keep(ctx, relay.Status)()
	stream, forget := newStreamWatch(ctx, func(ctx context.Context) (publisher.Stream, error) { return inspectStream(ctx, cfg.common) })
	defer forget()
	answer := cfg.statusOver(handler(relay, figures), relay.Status, past, trouble)
	defer cfg.serve(listener, newPage(relay, past, trouble, cfg.pageFacts(), stream).over(answer))()
	ctx, stop := withSignals(ctx, exitNow)
	defer stop()
	cfg.log.Info("relay starts", "version", readVersion().Version, "slot", cfg.slot.Slot, "table", cfg.slot.Table.String(),
		"stream", cfg.stream, "subject", cfg.subject.String(), "postgres", databaseName(cfg.database), "nats", cfg.nats.Servers())
	defer old.start(ctx)()
	defer (&summary{log: cfg.log, status: relay.Status}).start(ctx)()
	return runError(relay.Run(ctx))
}

// tune fits the Go runtime to a relay. What the operator set in the environment stays.
func (cfg runConfig) tune(env map[string]string) {
	// One goroutine does the work and a few of the client library's follow it. On one processor they take turns, and what
	// piles up meanwhile is read and written at once; on several, they wake each other for every message: with PostgreSQL
	// and NATS busy on the same two cores that took four times the CPU and halved the throughput.
	if env["GOMAXPROCS"] == "" {
		runtime.GOMAXPROCS(1)
	}
	// The collector keeps the process near what its window may hold; with large payloads two or three windows would else
	// pile up before it looks.
	if env["GOMEMLIMIT"] == "" {
		const base = 64 << 20 // everything that is not the window
		debug.SetMemoryLimit(int64(cfg.windowBytes) + base)
	}
}

// runError gives the end of a relay its exit code and its advice.
func runError(err error) error {
	if err == nil {
		return nil
	}
	e := &exitError{code: exitFailed, err: err}
	if advised, ok := errors.AsType[interface {
		error
		Advice() string
	}](err); ok {
		e.try = advised.Advice()
	}
	if _, ok := errors.AsType[*pump.HaltError](err); ok {
		e.code = exitPoison
	}
	if unfit, ok := errors.AsType[*pump.UnfitError](err); ok {
		e.code = exitTable
		if unfit.Slot() {
			e.code = exitSlot
		}
	}
	if _, ok := errors.AsType[*outbox.TableError](err); ok {
		e.code = exitTable
		e.try = "give the table its column back under that name, for the rows to come; the rows written meanwhile need a new slot " +
			"(relay slot drop, relay slot create) and must be inserted again"
	}
	return e
}
