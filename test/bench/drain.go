package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// relayProcess is a running relay.
type relayProcess struct {
	*sandbox.Process
	address string // of its metrics
}

func (w *world) startRelay(ctx context.Context, env ...string) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	p, err := sandbox.StartProcess(ctx, sandbox.ProcessConfig{
		Path: w.cfg.relay, Args: append(w.runArgs(), "--listen", address), Env: append([]string{childEnv + "=" + childRelay}, env...),
	})
	if err == nil {
		w.relay = &relayProcess{Process: p, address: address}
	}
	return err
}

// stopRelay asks the relay to stop and waits for its end.
func (w *world) stopRelay(ctx context.Context) error {
	if err := w.relay.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("the relay has ended: %w: %s", err, w.relay.Tail())
	}
	code, err := w.relay.Wait(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("the relay exited with %d: %s", code, w.relay.Tail())
	}
	w.relay = nil
	return err
}

func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// sample is what was used up to one moment: seconds of CPU, and the relay's own count of allocations and events.
type sample struct {
	relay, broker, walsender figure
	allocs, published        figure
}

const (
	metricAllocs    = "go_memstats_mallocs_total"
	metricPublished = "relay_events_published_total"
)

// scrape reads two of the relay's own metrics.
func (p *relayProcess) scrape(ctx context.Context) (allocs, published figure, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/metrics", http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	found := map[string]figure{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			found[name] = figure(value)
		}
	}
	for _, name := range []string{metricAllocs, metricPublished} {
		if _, ok := found[name]; !ok {
			return 0, 0, fmt.Errorf("the relay has no metric %s", name)
		}
	}
	return found[metricAllocs], found[metricPublished], nil
}

func (w *world) sample(ctx context.Context) (s sample, err error) {
	var errs [4]error
	s.allocs, s.published, errs[0] = w.relay.scrape(ctx)
	s.relay, errs[1] = cpuOf(w.relay.PID())
	s.broker, errs[2] = w.brokerCPU()
	s.walsender, errs[3] = w.walsenderCPU(ctx, w.name)
	return s, errors.Join(errs[:]...)
}

// drained is what draining a backlog took.
type drained struct {
	Rate                     figure // events a second, from the first stored to the last
	Seconds                  figure // from the start of the relay to the last event stored
	Relay, Broker, Walsender figure // microseconds of CPU for an event, without the start
	Allocs                   figure // for an event
	PeakRSS                  figure // MiB
}

// drain starts a relay and waits until the backlog is stored. The relay runs on.
//
// CPU and allocations are those between a tenth of the backlog and its end: what a start costs is no part of an event.
func (w *world) drain(ctx context.Context) (d drained, err error) {
	var env []string
	if w.cfg.profile != "" {
		env = append(env, profileEnv+"="+w.cfg.profile)
	}
	start := time.Now()
	if err := w.startRelay(ctx, env...); err != nil {
		return d, err
	}
	if _, err := w.until(ctx, w.cfg.events/10); err != nil {
		return d, err
	}
	first, err := w.sample(ctx)
	if err != nil {
		return d, err
	}
	state, err := w.until(ctx, w.cfg.events)
	if err != nil {
		return d, err
	}
	// The relay counts an event when it has taken the answer.
	var last sample
	err = poll(ctx, 10*time.Second, func() (bool, error) {
		last, err = w.sample(ctx)
		return err != nil || last.published >= figure(w.cfg.events), err
	})
	if err != nil {
		return d, err
	}
	usage, err := w.relay.Usage()
	n := last.published - first.published
	d.Rate = figure(state.Msgs) / figure(state.LastTime.Sub(state.FirstTime).Seconds())
	d.Seconds = figure(state.LastTime.Sub(start).Seconds())
	d.Relay, d.Broker, d.Walsender = 1e6*(last.relay-first.relay)/n, 1e6*(last.broker-first.broker)/n, 1e6*(last.walsender-first.walsender)/n
	d.Allocs = (last.allocs - first.allocs) / n
	d.PeakRSS = figure(usage.PeakRSSBytes) / (1 << 20)
	return d, err
}

// drainFresh makes the slot and a backlog, drains it with a new relay, and takes slot and messages away again.
func (w *world) drainFresh(ctx context.Context, neighbours int) (d drained, err error) {
	steps := []func() error{
		func() error { return w.makeSlot(ctx) },
		func() error { return w.backlog(ctx, neighbours) },
		func() (err error) { d, err = w.drain(ctx); return err },
		func() error { return w.stopRelay(ctx) },
		func() error { return w.dropSlot(ctx) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return d, err
		}
	}
	return d, nil
}
