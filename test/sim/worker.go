package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-1cfd9858/relay/test/sim/history"
)

// outcome is what is told of one schedule.
type outcome struct {
	Seed      uint64       `json:"seed"`
	Events    int          `json:"events"`
	Simulated float64      `json:"simulated_seconds"`
	Rule      history.Rule `json:"rule,omitempty"`
	Text      string       `json:"text,omitempty"`
}

func outcomeOf(seed uint64, res result) outcome {
	o := outcome{Seed: seed, Events: res.events, Simulated: res.took.Seconds()}
	if res.violation != nil {
		o.Rule, o.Text = res.violation.Rule, res.violation.Text
	}
	return o
}

// work runs schedules one after another and tells the outcome of each in a line of JSON. It stops at a violation.
func work(t *testing.T, w io.Writer, seed uint64, n int) bool {
	alone()
	var present atomic.Uint64
	go watch(&present)
	enc := json.NewEncoder(w)
	for i := range uint64(n) { //nolint:gosec // not negative
		present.Store(i + 1)
		o := outcomeOf(seed+i, run(t, draw(seed+i)))
		if err := enc.Encode(o); err != nil {
			return false
		}
		if o.Rule != "" {
			return false
		}
		tidy(int(i)) //nolint:gosec // small
	}
	return true
}

// alone makes a schedule as repeatable as Go allows: one core, and no garbage collection in the middle.
func alone() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
}

// tidy collects the garbage of some schedules between two.
func tidy(i int) {
	if i%16 == 15 {
		runtime.GC()
	}
}

// hang is how long a schedule may take on a real clock: longer means that simulated time stands still.
const hang = 15 * time.Second

// watch ends the process, with the stacks of all goroutines, when a schedule hangs. It runs outside of every bubble.
func watch(present *atomic.Uint64) {
	last := present.Load()
	for range time.Tick(hang) {
		if now := present.Load(); now == last {
			fmt.Fprintln(os.Stderr, "sim: simulated time stands still")
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
			os.Exit(exitError) //nolint:forbidigo // this is a program of its own, and the bubble cannot be ended
		} else {
			last = now
		}
	}
}

// show runs one schedule and prints its plan and its history.
func show(t *testing.T, w io.Writer, seed uint64) bool {
	alone()
	plan := draw(seed)
	res := run(t, plan)
	return printResult(w, plan, res)
}

func printResult(w io.Writer, plan Plan, res result) bool {
	_, _ = fmt.Fprintf(w, "seed %d, %+v\n\n", plan.Seed, plan.Set)
	_ = res.log.Write(w)
	if res.violation != nil {
		_, _ = fmt.Fprintf(w, "\nviolation: %v\n", res.violation)
		return false
	}
	_, _ = fmt.Fprintf(w, "\nno violation: %d events in the stream after %s\n", res.events, res.took)
	return true
}

// tries is how often a plan is run before it counts as one that does not fail: what Go leaves to chance differs.
const tries = 10

// fails returns the first failing result of a plan.
func fails(t *testing.T, plan Plan) (result, bool) {
	for range tries {
		if res := run(t, plan); res.violation != nil {
			return res, true
		}
		runtime.GC()
	}
	return result{}, false
}

// shrink cuts the plan of a failing seed: to its first failing prefix, then it leaves out what is not needed.
func shrink(t *testing.T, w io.Writer, seed uint64) bool {
	alone()
	plan := draw(seed)
	res, failed := fails(t, plan)
	if !failed {
		_, _ = fmt.Fprintf(w, "seed %d does not fail in %d runs\n", seed, tries)
		return true
	}
	plan.Step = plan.Step[:min(res.steps, len(plan.Step))]
	for size := max(len(plan.Step)/2, 1); ; size /= 2 {
		for i := 0; i+size <= len(plan.Step); {
			less := plan
			less.Step = append(append([]Step(nil), plan.Step[:i]...), plan.Step[i+size:]...)
			if r, still := fails(t, less); still {
				plan, res = less, r
			} else {
				i += size
			}
		}
		if size <= 1 {
			break
		}
	}
	b, err := json.Marshal(plan)
	if err != nil {
		return false
	}
	printResult(w, plan, res)
	_, _ = fmt.Fprintf(w, "\nas a file of testdata/corpus:\n%s\n", b)
	return false
}
