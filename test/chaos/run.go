package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seed-1cfd9858/relay/test/mutant"
)

// settleLimit is how long relays may take to deliver everything after the last fault.
const settleLimit = 90 * time.Second

// wreak plays the faults and draws the balance.
func wreak(ctx context.Context, opts options, out io.Writer) (_ *result, err error) {
	began := time.Now()
	s := &story{w: out, start: began}
	s.say("seed %d", opts.seed)
	dir, err := os.MkdirTemp("", "relay-chaos-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := opts.program(ctx, dir)
	if err != nil {
		return nil, err
	}
	w, err := newWorld(ctx, program, opts, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r := &result{Seed: opts.seed, Faults: map[string]int{}}
	for _, m := range w.relays {
		r.logs = append(r.logs, m.log.Name())
	}
	c, err := w.copyStream(ctx)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	if opts.foreign {
		defer w.foreigner(ctx, opts.seed)()
	}
	l := startLoad(ctx, w.url(), opts.rate, opts.seed)
	defer l.stop()
	x := w.watch(ctx)
	defer x.stop()
	play := w.play
	if opts.purge {
		r.again = true
		play = func(ctx context.Context, _ options, _ *load, _ *result) error { return w.purge(ctx, c) }
	}
	if err := play(ctx, opts, l, r); err != nil {
		return nil, fmt.Errorf("%w\nrelays' logs: %s %s", err, r.logs[0], r.logs[1])
	}
	l.stop()
	s.say("no more faults: waiting until everything is delivered")
	if err := w.settle(ctx); err != nil {
		s.say("%v", err) // the balance says what is missing
	}
	if err := w.judge(ctx, opts, r, c, x.stop()); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(began).Seconds()
	if r.verdict() == nil {
		err = w.forgetLogs()
	}
	return r, err
}

// faults are those that were asked for.
func (o options) faults() []fault {
	return slices.DeleteFunc(faults(), func(f fault) bool {
		return !strings.Contains(f.name, o.only) || f.cluster && !o.cluster || f.foreign && !o.foreign
	})
}

// program returns the relay with the mutant in it, "" for the one in this executable.
func (o options) program(ctx context.Context, dir string) (string, error) {
	if o.mutant == "" {
		return "", nil
	}
	root, err := mutant.Repository(ctx)
	if err != nil {
		return "", err
	}
	mutants, err := mutant.Read(root, o.mutant)
	if err != nil {
		return "", err
	}
	return mutants[0].Build(ctx, root, dir, ".")
}

// play makes faults, one after the other, until the time is over.
func (w *world) play(ctx context.Context, opts options, l *load, r *result) error {
	rng := rand.New(rand.NewPCG(opts.seed, 0)) //nolint:gosec // repeatable on purpose
	kinds := opts.faults()
	var deck []int // each kind comes up once before one comes again
	for end := time.Now().Add(time.Duration(opts.seconds) * time.Second); time.Now().Before(end); {
		if !sleep(ctx, time.Duration(rng.ExpFloat64()*float64(opts.every))) {
			return context.Cause(ctx)
		}
		if len(deck) == 0 {
			deck = rng.Perm(len(kinds))
		}
		kind := kinds[deck[0]]
		deck = deck[1:]
		w.out.say("%s", kind.name)
		own := rand.New(rand.NewPCG(opts.seed, rng.Uint64())) //nolint:gosec // what a fault draws does not shift what follows
		if err := kind.do(ctx, w, l, own); err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		r.Faults[kind.name]++
		for _, m := range w.relays {
			if !m.proc().Running() {
				return fmt.Errorf("%s has ended by itself after %q", m.name, kind.name)
			}
		}
	}
	return nil
}

// settle starts what does not run and waits until the slot is confirmed to the end.
func (w *world) settle(ctx context.Context) error {
	for _, m := range w.relays {
		if err := m.start(ctx); err != nil {
			return err
		}
	}
	_, target, err := w.confirmed(ctx)
	if err != nil {
		return err
	}
	return waitFor(ctx, settleLimit, "everything is confirmed", func() (bool, error) {
		confirmed, _, err := w.confirmed(ctx)
		return confirmed >= target, err
	})
}

func (w *world) judge(ctx context.Context, opts options, r *result, c *streamCopy, samples []sample) error {
	record, err := w.record(ctx)
	if err != nil {
		return fmt.Errorf("read the record of the commits: %w", err)
	}
	if err := c.complete(ctx); err != nil {
		return err
	}
	stream, holes := c.got()
	for _, hole := range holes {
		r.find(&r.Holes, "%s", hole)
	}
	var reported map[string]bool
	if opts.foreign {
		if reported, err = w.brokenOrder(); err != nil {
			return err
		}
	}
	r.balance(record, stream, reported)
	r.early(record, stream, samples)
	r.backwards(samples)
	r.LongestStall = stall(record, stream).Seconds()
	for _, m := range w.relays {
		r.earlyOnWire(record, stream, m.confirmations())
		if usage, err := m.proc().Usage(); err == nil {
			r.RelayRSS = max(r.RelayRSS, float64(usage.RSSBytes)/(1<<20))
		}
	}
	return nil
}
