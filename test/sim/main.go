// Command sim runs whole relays against models of their two servers, in simulated time, thousands of schedules a minute.
// docs/simulation.md tells how it works and how to read what it prints.
//
//	go run ./test/sim --schedules 10000 [--seed 1] [--json]     many schedules, on all cores
//	go run ./test/sim --show 4711                               one schedule and its history
//	go run ./test/sim --shrink 4711                             cut a failing one down to what fails
//	go run ./test/sim --mutants [--only NAME]                   deliberate faults of the core: does a check see them?
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"testing"
	"time"
)

// options are the flags.
type options struct {
	schedules int
	seed      uint64
	jobs      int
	json      bool
	keepOn    bool
	show      uint64
	shrink    uint64
	mutants   bool
	only      string
	worker    bool
}

func main() {
	testing.Init() // a bubble needs a *testing.T
	var o options
	flag.IntVar(&o.schedules, "schedules", 1000, "how many to run")
	flag.Uint64Var(&o.seed, "seed", 0, "the first seed; the others follow it. 0: from the clock")
	flag.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "processes at once, each on one core")
	flag.BoolVar(&o.json, "json", false, "print JSON, one object a line")
	flag.BoolVar(&o.keepOn, "keep-on", false, "go on after a violation")
	flag.Uint64Var(&o.show, "show", 0, "run this seed and print its history")
	flag.Uint64Var(&o.shrink, "shrink", 0, "cut this failing seed down to the steps that fail")
	flag.BoolVar(&o.mutants, "mutants", false, "put deliberate faults into the core, one at a time")
	flag.StringVar(&o.only, "only", "", "with --mutants: this one only")
	flag.BoolVar(&o.worker, "worker", false, "for this program's own use")
	flag.Parse()
	if o.seed == 0 {
		o.seed = uint64(time.Now().Unix()) * 1_000_000 //nolint:gosec // positive
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	code := o.run(ctx)
	cancel()
	os.Exit(code)
}

func (o options) run(ctx context.Context) int {
	var (
		ok  bool
		err error
	)
	switch {
	case o.worker:
		return inTest(func(t *testing.T) bool { return work(t, os.Stdout, o.seed, o.schedules) }) //nolint:contextcheck // a bubble has its own life
	case o.show != 0:
		return inTest(func(t *testing.T) bool { return show(t, os.Stdout, o.show) }) //nolint:contextcheck // a bubble has its own life
	case o.shrink != 0:
		return inTest(func(t *testing.T) bool { return shrink(t, os.Stdout, o.shrink) }) //nolint:contextcheck // a bubble has its own life
	case o.mutants:
		ok, err = o.runMutants(ctx, os.Stdout)
	default:
		ok, err = o.runMany(ctx, os.Stdout)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "sim:", err)
		return exitError
	case !ok:
		return exitViolation
	}
	return 0
}

// What the program's exit codes say.
const (
	exitError     = 1
	exitViolation = 3
)

// inTest calls f with a *testing.T, as the one test of this process, which it ends: a bubble needs one.
func inTest(f func(t *testing.T) bool) int {
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "sim", F: func(t *testing.T) {
		code := 0
		if !f(t) {
			code = exitViolation
		}
		os.Exit(code)
	}}}, nil, nil)
	return exitError // not reached
}
