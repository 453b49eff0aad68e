package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// Half a relay each: what the drain is made of. Both run in a child process, on one processor as the relay does, which counts
// for itself from the first event to the last.

const inputEnv = "RELAY_TEST_INPUT"

// input is what such a child is told.
type input struct {
	Database, Slot, Publication string
	NATS, Stream, Subject       string
	Events, Payload, PerTx      int
	Headers                     int // of each event
}

// alone is what it reports.
type alone struct {
	Rate   figure `json:"rate"`   // events a second
	CPU    figure `json:"cpu"`    // microseconds for an event
	Allocs figure `json:"allocs"` // for an event
}

// childReport runs one of the two and prints what it found.
func childReport(run func(context.Context, input, *meter) error) (code int) {
	runtime.GOMAXPROCS(1)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var in input
	err := json.Unmarshal([]byte(os.Getenv(inputEnv)), &in)
	var m meter
	if err == nil {
		err = run(ctx, in, &m)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(m.report(in.Events))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runAlone starts such a child and returns its report.
func runAlone(ctx context.Context, kind string, in input) (a alone, err error) {
	text, err := json.Marshal(in)
	if err != nil {
		return a, err
	}
	var out bytes.Buffer
	p, err := sandbox.StartProcess(ctx, sandbox.ProcessConfig{
		Env: []string{childEnv + "=" + kind, inputEnv + "=" + string(text)}, Stdout: &out,
	})
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	code, err := p.Wait(ctx)
	if err != nil {
		return a, err
	}
	if code != 0 {
		return a, fmt.Errorf("%s alone: exit %d: %s", kind, code, p.Tail())
	}
	return a, json.Unmarshal(out.Bytes(), &a)
}

// meter measures this process between start and stop.
type meter struct {
	began, ended   time.Time
	cpu            time.Duration
	allocs, before uint64
}

func (m *meter) start() {
	m.before, m.cpu, m.began = mallocs(), cpuTime(), time.Now()
}

func (m *meter) stop() {
	m.ended, m.cpu, m.allocs = time.Now(), cpuTime()-m.cpu, mallocs()-m.before
}

func (m *meter) report(events int) alone {
	n := float64(events)
	return alone{
		Rate: figure(n / m.ended.Sub(m.began).Seconds()), CPU: figure(float64(m.cpu.Microseconds()) / n), Allocs: figure(float64(m.allocs) / n),
	}
}

func mallocs() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for a wrong argument only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
