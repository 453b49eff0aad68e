package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/pump"
	"github.com/seed-1cfd9858/relay/slot"
	"github.com/seed-1cfd9858/relay/test/sim/history"
	"github.com/seed-1cfd9858/relay/test/sim/simnet"
)

// relay is one process of a relay.
type relay struct {
	proc     *simnet.Process
	pump     *pump.Pump
	cancel   context.CancelFunc
	done     chan struct{} // closed when Run has returned
	err      error
	muted    atomic.Bool  // it was killed: what it still says is nobody's
	stopping atomic.Bool  // it was told to stop
	thawed   atomic.Int64 // when it was last let go on, Unix nanoseconds
}

// start runs a relay as number i.
func (w *world) start(i int) {
	r := &relay{done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	w.trapMu.Lock()
	number := len(w.all)
	r.proc = simnet.NewProcess(fmt.Sprintf("relay%d.%d", i, number), nil)
	w.trapMu.Unlock()
	log := slog.New(logHandler{log: w.log, who: r.proc.Name, muted: &r.muted})
	r.pump = pump.New(w.pumpConfig(r, number), w.database(r), log)
	w.trapMu.Lock()
	w.relays[i] = r
	w.all = append(w.all, r)
	w.trapMu.Unlock()
	w.log.Add(r.proc.Name, "starts")
	go func() {
		defer close(r.done)
		defer cancel()
		r.err = r.pump.Run(ctx)
		if r.muted.Load() {
			return
		}
		w.log.Add(r.proc.Name, "ends: %v", r.err)
		w.judge(r) //nolint:contextcheck // a relay in a bubble is a process of its own
	}()
}

// judge looks at how a relay ended by itself.
func (w *world) judge(r *relay) {
	var (
		unfit *pump.UnfitError
		table *outbox.TableError
	)
	var halt *pump.HaltError
	switch {
	case errors.As(r.err, &halt):
		w.leaveOut(halt.Position)
		w.later(time.Second, func() {
			for i := range w.plan.Set.Relays {
				w.revive(i)
			}
		})
	case r.err == nil && r.stopping.Load():
	case (errors.As(r.err, &unfit) || errors.As(r.err, &table)) && w.slotGone():
	default:
		w.check.Fail(history.Orderly, "%s ended by itself: %v", r.proc.Name, r.err)
	}
}

// leaveOut is what an operator does about a poison event.
func (w *world) leaveOut(position string) {
	w.check.Release(position)
	w.trapMu.Lock()
	defer w.trapMu.Unlock()
	w.skip[position] = true
}

func (w *world) pumpConfig(r *relay, number int) pump.Config {
	template, err := outbox.ParseTemplate(outbox.DefaultTemplate)
	if err != nil {
		panic(err)
	}
	set := w.plan.Set
	w.trapMu.Lock()
	skip := maps.Clone(w.skip)
	w.trapMu.Unlock()
	return pump.Config{
		Slot: w.slot,
		Publisher: publisher.Config{
			Conn: publisher.ConnConfig{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return r.proc.Dial(ctx, w.js.Proc, w.natsLink())
			}},
			Stream: "OUTBOX", Template: template, Window: set.Window, WindowBytes: set.WindowBytes, AckTimeout: set.AckTimeout,
			Skip: skip,
		},
		Random:         w.plan.random(1000 + uint64(number)).Float64,
		Inspect:        func(ctx context.Context) (slot.State, error) { return w.pg.Inspect(ctx, r.proc) },
		SessionTimeout: set.Session, YieldAfter: set.Yield, ConfirmDelay: set.ConfirmDelay,
	}
}

// databaseURL names no server that exists: connections are made by DialFunc.
const databaseURL = "postgres://relay@127.0.0.1:5432/app?sslmode=disable"

func (w *world) database(r *relay) *pgx.ConnConfig {
	cfg, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		panic(err)
	}
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return r.proc.Dial(ctx, w.pg.Proc, w.link())
	}
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	return cfg
}

// kill ends a relay as kill -9 does. Its goroutines find a dead network and end by and by; nothing of what they do counts.
func (w *world) kill(r *relay, lose bool) {
	if r.muted.Swap(true) {
		return
	}
	w.log.Add(r.proc.Name, "is killed (bytes on the way are lost: %v)", lose)
	r.proc.Kill(lose)
	r.cancel()
}

// stop is SIGTERM.
func (w *world) stop(r *relay) {
	if !r.stopping.Swap(true) {
		w.log.Add(r.proc.Name, "is told to stop")
	}
	r.cancel()
}

// relay returns the present relay of a number.
func (w *world) relay(i int) *relay {
	w.trapMu.Lock()
	defer w.trapMu.Unlock()
	return w.relays[i]
}

// present returns the present relay of each number.
func (w *world) present() []*relay {
	w.trapMu.Lock()
	defer w.trapMu.Unlock()
	return slices.Clone(w.relays)
}

// running reports whether relay r is neither dead nor at its end.
func (r *relay) running() bool {
	select {
	case <-r.done:
		return false
	default:
		return !r.muted.Load() && !r.stopping.Load()
	}
}

// revive starts relay number i again if it does not run.
func (w *world) revive(i int) {
	w.startMu.Lock()
	defer w.startMu.Unlock()
	if !w.relay(i).running() && !w.slotGone() && !w.closing.Load() {
		w.start(i)
	}
}

// stopTime bounds how long a relay may take to stop when its servers work.
const stopTime = 60 * time.Second
