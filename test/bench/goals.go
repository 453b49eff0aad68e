package main

import (
	"fmt"

	"github.com/seed-1cfd9858/relay/publisher"
)

// goal is one figure with what it should be.
type goal struct {
	figure, want, got string
	known, met        bool
}

func (g goal) verdict() string {
	switch {
	case !g.known:
		return ""
	case g.met:
		return "met"
	}
	return "missed"
}

// maxRSS is the goal for the resident memory, in MiB: what waits, and 48 MiB for everything else.
const maxRSS = 48 + publisher.DefaultWindowBytes>>20

// goals compares the figures with what they should be. All are ratios inside one run, or bounds of the relay alone.
func (f *figures) goals() []goal {
	var all []goal
	atMost := func(name string, got, limit figure, format string) {
		all = append(all, goal{name, "<= " + limit.text(format), got.text(format), got.known() && limit.known(), got <= limit})
	}
	atLeast := func(name string, got, limit figure) {
		all = append(all, goal{name, ">= " + limit.text("%.2f"), got.text("%.2f"), got.known(), got >= limit})
	}
	atMost("relay's share of the CPU in the drain", f.RelayShare, 0.20, "%.2f")
	atMost("relay's CPU against nats-server's", f.RelayVsBroker, 0.33, "%.2f")
	atLeast("drain against publish only", f.DrainVsPublish, 0.55)
	atMost("relay's CPU at 1 000 transactions/s, of a core", f.SteadyCPU["1000"], 10, "%.1f %%")
	atMost("allocations an event", f.Allocs, 3, "%.1f")
	atMost("peak RSS, drain", f.PeakRSS, maxRSS, "%.0f MiB")
	for _, part := range []string{partTransaction, partOutage} {
		if g, ok := f.largest(part); ok {
			atMost(fmt.Sprintf("peak RSS, %s: %s", g.Part, g.Value), g.PeakRSS, maxRSS, "%.0f MiB")
		}
	}
	yard := f.PublishLatency
	atMost("commit to stored at 1 000 transactions/s, p50 (1.5 x a synchronous publish + 0.3 ms)", f.Latency["1000"].P50, 1.5*yard.P50+0.3, "%.2f ms")
	atMost("commit to stored at 1 000 transactions/s, p99 (4 x + 0.3 ms)", f.Latency["1000"].P99, 4*yard.P99+0.3, "%.2f ms")
	atMost("commit to stored at 10 000 events/s, p99 (8 x + 0.3 ms)", f.Latency["10000"].P99, 8*yard.P99+0.3, "%.2f ms")
	if full, ok := f.largest(partTable); ok {
		atLeast("throughput with "+full.Value+" in the table, against none", full.Rate/f.first(partTable).Rate, 0.95)
	}
	atMost("idle, of a core", f.IdleCPU, 0.2, "%.2f %%")
	atMost("idle with a busy neighbour table, of a core", f.IdleBusyCPU, 2, "%.2f %%")
	return all
}

// first and largest return the first and the last figure of a part of the growth.
func (f *figures) first(part string) grown {
	for _, g := range f.Growth {
		if g.Part == part {
			return g
		}
	}
	return grown{Rate: unknown()}
}

func (f *figures) largest(part string) (last grown, ok bool) {
	for _, g := range f.Growth {
		if g.Part == part {
			last, ok = g, true
		}
	}
	return last, ok
}
