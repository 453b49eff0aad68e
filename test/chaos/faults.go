package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// fault is something that goes wrong. It is over, with everything running again, when do returns.
type fault struct {
	name    string
	do      func(ctx context.Context, w *world, l *load, rng *rand.Rand) error
	server  bool // of a server: it can happen beside one of a relay or its network
	cluster bool // only with --cluster
	foreign bool // only with --foreign
}

// leadLimit is how long a relay may take to lead after a fault: the session timeout until the walsender gives up the dead
// one, and as much again for a machine that is busy.
const leadLimit = 30 * time.Second

// faults are all kinds. The order is part of what a seed means.
func faults() []fault {
	var all []fault
	add := func(name string, do func(context.Context, *world, *load, *rand.Rand) error) {
		all = append(all, fault{name: name, do: do})
	}
	for _, s := range steps() {
		add("leader killed "+s.name, func(ctx context.Context, w *world, _ *load, _ *rand.Rand) error { return w.killAt(ctx, s) })
	}
	add("leader killed", func(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
		return w.withLeader(ctx, func(m *member) error { return w.kill(ctx, rng, m) })
	})
	add("standby killed", func(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
		return w.withLeader(ctx, func(m *member) error { return w.kill(ctx, rng, w.other(m)) })
	})
	add("both relays killed", func(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
		return w.kill(ctx, rng, w.relays[:]...)
	})
	add("leader stopped (SIGTERM)", stopLeader)
	add("leader frozen until it was replaced", freezeLeader)
	relays := len(all)
	all = append(all, brokerFaults()...)
	for _, stop := range []struct {
		name string
		mode sandbox.StopMode
	}{{"immediate", sandbox.Immediate}, {"fast", sandbox.Fast}, {"smart", sandbox.Smart}} {
		add("postgres stopped ("+stop.name+")", func(ctx context.Context, w *world, l *load, rng *rand.Rand) error {
			return stopPostgres(ctx, w, l, rng, stop.mode)
		})
	}
	add("walsender terminated", func(ctx context.Context, w *world, _ *load, _ *rand.Rand) error {
		return w.do(ctx, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active_pid IS NOT NULL`, slotName)
			return err
		})
	})
	add("stream full", fillStream)
	for i := range all[relays:] {
		all[relays+i].server = true
	}
	all = append(all, lateFaults()...)
	all = append(all, foreignFaults()...)
	return append(all, networkFaults()...)
}

// networkFaults are those between one relay and one server.
func networkFaults() []fault {
	var all []fault
	for _, way := range []struct {
		name string
		of   func(*member) link
	}{
		{"postgres", func(m *member) link { return link{m.pgProxy} }},
		{"nats", func(m *member) link { return m.natsProxy }},
	} {
		add := func(name string, do func(context.Context, link, *rand.Rand) error) {
			all = append(all, fault{name: name + " between a relay and " + way.name, do: func(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
				return w.withLeader(ctx, func(m *member) error {
					if rng.IntN(4) == 0 {
						m = w.other(m)
						w.out.say("  the standby's")
					}
					return do(ctx, way.of(m), rng)
				})
			}})
		}
		add("cut", func(_ context.Context, p link, _ *rand.Rand) error { p.Cut(); return nil })
		add("half-open", func(ctx context.Context, p link, rng *rand.Rand) error {
			p.Freeze()
			sleep(ctx, between(rng, time.Second, 3*sessionTimeout))
			p.Thaw()
			return nil
		})
		add("refused", func(ctx context.Context, p link, rng *rand.Rand) error {
			if err := p.Refuse(ctx, true); err != nil {
				return err
			}
			p.Cut()
			sleep(ctx, between(rng, 0, 8*time.Second)) // longer than --yield-after, sometimes
			return p.Refuse(context.WithoutCancel(ctx), false)
		})
		add("delay", func(ctx context.Context, p link, rng *rand.Rand) error {
			p.Delay(between(rng, time.Millisecond, 100*time.Millisecond))
			sleep(ctx, between(rng, time.Second, 3*time.Second))
			p.Delay(0)
			return nil
		})
	}
	all = append(all, fault{name: "cut in a large message on its way to nats", do: func(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
		return w.withLeader(ctx, func(m *member) error {
			passes := seenNATS(m, func(msg sandbox.NATSMessage) bool { return msg.SizeBytes > largeBytes })
			return w.cutLarge(ctx, rng, m, m.natsProxy, passes)
		})
	}}, fault{name: "cut in a large message on its way from postgres", do: func(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
		return w.withLeader(ctx, func(m *member) error {
			passes := seenPg(m, func(msg sandbox.PgMessage) bool { return msg.SizeBytes > largeBytes })
			return w.cutLarge(ctx, rng, m, link{m.pgProxy}, passes)
		})
	}})
	return all
}

// largeBytes is a message that the proxies pass on in several pieces.
const largeBytes = 64 << 10

// cutLarge cuts the connections at a random moment after the beginning of a large message has come.
func (w *world) cutLarge(ctx context.Context, rng *rand.Rand, m *member, way link, passes <-chan struct{}) error {
	w.awaitStep(ctx, passes)
	sleep(ctx, between(rng, time.Microsecond, 2*time.Millisecond))
	way.Cut()
	m.onPg(nil)
	m.natsProxy.OnNATS(nil)
	return nil
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

func anyRelay(*member) bool { return true }

func (w *world) withLeader(ctx context.Context, f func(*member) error) error {
	m, err := w.waitLeader(ctx, leadLimit, anyRelay)
	if err != nil {
		return err
	}
	return f(m)
}

// kill kills relays, and starts them again after a while.
func (w *world) kill(ctx context.Context, rng *rand.Rand, members ...*member) error {
	for _, m := range members {
		if err := m.proc().Kill(); err != nil {
			return err
		}
		m.cut()
	}
	sleep(ctx, between(rng, 0, time.Second))
	for _, m := range members {
		if err := m.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func stopLeader(ctx context.Context, w *world, _ *load, _ *rand.Rand) error {
	return w.withLeader(ctx, func(m *member) error {
		if err := m.proc().Signal(syscall.SIGTERM); err != nil {
			return err
		}
		limit, cancel := context.WithTimeoutCause(ctx, leadLimit, fmt.Errorf("it did not end within %v of SIGTERM", leadLimit))
		defer cancel()
		code, err := m.proc().Wait(limit)
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("%s answers SIGTERM with exit code %d", m.name, code)
		}
		return m.start(ctx)
	})
}

// freezeLeader stops the leader where it is, lets it be replaced, and wakes it up: it must do no harm (I7).
func freezeLeader(ctx context.Context, w *world, _ *load, _ *rand.Rand) error {
	return w.withLeader(ctx, func(m *member) error {
		if err := m.proc().Freeze(ctx); err != nil {
			return err
		}
		_, err := w.waitLeader(ctx, leadLimit, func(now *member) bool { return now != m })
		if thaw := m.proc().Thaw(); thaw != nil {
			return thaw
		}
		return err
	})
}

// savesSlots is the first major that writes the confirmed LSN of a logical slot at a shutdown, whatever else has changed.
// Others may fall back to what was on disk, as after a crash.
const savesSlots = 17

func stopPostgres(ctx context.Context, w *world, l *load, rng *rand.Rand, mode sandbox.StopMode) error {
	if mode == sandbox.Smart { // it waits for the application, and must not have to wait for the relays
		l.pause.Store(true)
		defer l.pause.Store(false)
		err := waitFor(ctx, leadLimit, "the writers let go", func() (bool, error) { return l.idle.Load() == writers, nil })
		if err != nil {
			return err
		}
	}
	if mode == sandbox.Immediate || w.pg.Major() < savesSlots {
		w.forgets.Add(1)
	}
	began := time.Now()
	limit, cancel := context.WithTimeout(ctx, leadLimit)
	defer cancel()
	if err := w.pg.Stop(limit, mode); err != nil {
		return fmt.Errorf("postgres does not stop: %w", err)
	}
	w.out.say("  postgres has stopped after %.1f s", time.Since(began).Seconds())
	sleep(ctx, between(rng, 0, 2*time.Second))
	return w.pg.Start(ctx)
}

// fillStream forbids the stream to grow for a while.
func fillStream(ctx context.Context, w *world, _ *load, rng *rand.Rand) error {
	if err := persist(ctx, "the stream is limited", func() error { return w.limitStream(ctx, true) }); err != nil {
		return err
	}
	sleep(ctx, between(rng, 0, 4*time.Second))
	return persist(ctx, "the limit is lifted", func() error { return w.limitStream(ctx, false) })
}

// limitStream makes the stream full, or lifts the limit again.
func (w *world) limitStream(ctx context.Context, full bool) error {
	return w.withStream(ctx, func(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream) error {
		cfg := stream.CachedInfo().Config
		cfg.MaxMsgs = -1
		if full {
			cfg.MaxMsgs = int64(stream.CachedInfo().State.Msgs) + 1 //nolint:gosec // small
		}
		_, err := js.UpdateStream(ctx, cfg)
		return err
	})
}
