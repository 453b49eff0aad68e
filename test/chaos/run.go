package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-1cfd9858/relay/test/mutant"
)

// settleLimit is how long relays may take to deliver everything after the last fault.
const settleLimit = 60 * time.Second

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
	r := &result{Seed: opts.seed, Faults: map[string]int{}, began: began}
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
	record := w.keepRecord(ctx)
	defer record.stop()
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
		if ctx.Err() != nil {
			return nil, err
		}
		r.find(&r.Failures, time.Now(), "%v", err)
		if err := w.lift(ctx); err != nil {
			return nil, errors.Join(err, r.verdict())
		}
	}
	l.stop()
	s.say("no more faults: waiting until everything is delivered")
	if err := w.settle(ctx); err != nil {
		r.find(&r.Failures, time.Now(), "%v", err) // the balance says what is missing
	}
	if err := w.judge(ctx, opts, r, record, c, x.stop()); err != nil {
		return nil, errors.Join(err, r.verdict())
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

// program returns the relay that was asked for, with the mutant in it; "" for the one in this executable.
func (o options) program(ctx context.Context, dir string) (string, error) {
	if o.mutant == "" {
		return o.relay, nil
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
		if err := w.strike(ctx, opts, kind, companion(rng, kind, kinds), rng, l, r); err != nil {
			return err
		}
		for _, m := range w.relays {
			if p := m.proc(); !p.Running() {
				code, _ := p.Wait(ctx)
				r.find(&r.Failures, time.Now(), "%s has ended by itself, with exit code %d", m.name, code)
				if err := m.start(ctx); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// companion returns a server's fault that happens beside a relay's own, one time in three.
func companion(rng *rand.Rand, kind fault, kinds []fault) *fault {
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(f fault) bool { return !f.server })
	if beside := rng.IntN(3) == 0; !beside || kind.server || len(kinds) == 0 {
		return nil
	}
	return &kinds[rng.IntN(len(kinds))]
}

// strike plays one fault, or two at once.
func (w *world) strike(ctx context.Context, opts options, kind fault, beside *fault, rng *rand.Rand, l *load, r *result) error {
	all := []fault{kind}
	if beside != nil {
		all = append(all, *beside)
	}
	defer r.strikes(all)()
	errs := make([]error, len(all))
	var both sync.WaitGroup
	for i, f := range all {
		w.out.say("%s%s", strings.Repeat("  and at once: ", i), f.name)
		own := rand.New(rand.NewPCG(opts.seed, rng.Uint64())) //nolint:gosec // what a fault draws does not shift what follows
		r.Faults[f.name]++
		both.Go(func() {
			if err := f.do(ctx, w, l, own); err != nil {
				errs[i] = fmt.Errorf("%s: %w", f.name, err)
			}
		})
	}
	both.Wait()
	return errors.Join(errs...)
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

func (w *world) judge(ctx context.Context, opts options, r *result, kept *record, c *streamCopy, x *watcher) error {
	record, err := kept.complete(ctx)
	if err != nil {
		return err
	}
	if err := kept.trust(ctx); err != nil {
		return err
	}
	if err := c.complete(ctx); err != nil {
		return err
	}
	stream, holes := c.got()
	for _, hole := range holes {
		r.find(&r.Holes, time.Time{}, "%s", hole)
	}
	said, err := w.reports()
	if err != nil {
		return fmt.Errorf("read the relays' logs: %w", err)
	}
	for _, line := range said.never {
		r.find(&r.Crashes, time.Time{}, "a relay said: %s", line)
	}
	if !opts.foreign && len(said.broken) > 0 {
		r.find(&r.Crashes, time.Time{}, "a relay reported a broken order: %v", slices.Sorted(maps.Keys(said.broken)))
	}
	if opts.purge && r.again && !said.purged {
		w.out.say("no relay said that it could not know what was stored")
	}
	r.balance(record, stream, said.broken)
	r.early(record, stream, x.samples)
	r.backwards(x.samples)
	longest, end := stall(record, stream, time.Now())
	r.LongestStall = longest.Seconds()
	if longest > 0 {
		w.out.say("the longest stall, of %.1f s, ended at %.1f s", longest.Seconds(), end.Sub(w.out.start).Seconds())
	}
	for _, m := range w.relays {
		r.earlyOnWire(record, stream, m.confirmations())
	}
	r.RSSBegin, r.RelayRSS = x.begin, w.memory()
	r.RSSPeak = max(x.peak, r.RelayRSS)
	return nil
}
