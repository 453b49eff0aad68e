package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// relay is `relay run` in a child process. It belongs to the goroutine that plays.
type relay struct {
	*sandbox.Process
	expected atomic.Bool // its end is the demo's doing, or the person's
}

const leadLimit = 30 * time.Second

// startRelay starts a relay and waits until it holds the slot. It reports an end that nobody asked for with fail.
func (d *demo) startRelay(ctx context.Context) (*relay, error) {
	process, err := sandbox.StartProcess(ctx, sandbox.ProcessConfig{
		Args: []string{"run", "--listen=", "--database-url=" + d.world.proxied(), "--nats-url=" + d.world.proxiedNATS()},
		Env:  []string{childEnv + "=" + childRelay},
	})
	if err != nil {
		return nil, err
	}
	r := &relay{Process: process}
	d.relays = append(d.relays, r)
	d.workers.Go(func() {
		<-r.Done()
		if !r.expected.Load() {
			d.fail(fmt.Errorf("a relay ended by itself; it said: %s", strings.TrimSpace(r.Tail())))
		}
	})
	err = waitFor(ctx, leadLimit, "the relay holds the slot", func() (bool, error) { return d.world.held(ctx) })
	if err != nil {
		return nil, err
	}
	return r, nil
}

// crash kills the relay the hard way and waits until PostgreSQL knows: what the proxy held of it never arrives.
func (d *demo) crash(ctx context.Context, r *relay) error {
	r.expected.Store(true)
	if err := r.Kill(); err != nil {
		return err
	}
	d.world.proxy.OnPg(nil)
	d.world.natsProxy.OnNATS(nil)
	d.world.proxy.Cut()
	d.world.natsProxy.Cut()
	return waitFor(ctx, leadLimit, "PostgreSQL sees that the relay is gone", func() (bool, error) {
		held, err := d.world.held(ctx)
		return !held, err
	})
}

// askToStop sends SIGTERM and waits until the relay drains.
func (r *relay) askToStop(ctx context.Context) error {
	r.expected.Store(true)
	if err := r.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return waitFor(ctx, leadLimit, "the relay drains", func() (bool, error) { return strings.Contains(r.Tail(), "stopping: "), nil })
}

// stop asks the relay to stop, as a supervisor would, and waits for it.
func (r *relay) stop(ctx context.Context) error {
	r.expected.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	if err := r.Signal(syscall.SIGTERM); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		return err
	}
	code, err := r.Wait(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("the relay answered SIGTERM with exit code %d; it said: %s", code, strings.TrimSpace(r.Tail()))
	}
	return errors.Join(err, r.Close())
}
