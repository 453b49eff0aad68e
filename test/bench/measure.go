package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// measure makes all of the measurement.
func measure(ctx context.Context, cfg config) (f *figures, err error) {
	s, err := startServers(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	f = &figures{
		Events: cfg.events, Payload: cfg.payload, PerTx: cfg.perTx,
		Latency: map[string]latency{}, SteadyCPU: map[string]figure{}, Written: map[string]figure{},
	}
	if err := f.describe(ctx, s); err != nil {
		return nil, err
	}
	if err := measureBacklog(ctx, s, cfg, f); err != nil {
		return nil, err
	}
	if cfg.growth {
		if f.Growth, err = grow(ctx, s, cfg); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// measureBacklog measures one backlog, read alone, published alone and drained; then the same relay in a steady flow and
// at rest.
func measureBacklog(ctx context.Context, s *servers, cfg config, f *figures) (err error) {
	w, err := newWorld(ctx, s, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(context.WithoutCancel(ctx))) }()
	if err := measureDrain(ctx, w, f); err != nil {
		return err
	}
	if f.IdleCPU, err = w.idleReported(ctx, false); err != nil {
		return err
	}
	if f.IdleBusyCPU, err = w.idleReported(ctx, true); err != nil {
		return err
	}
	if f.PublishLatency, err = w.yardstick(ctx); err != nil {
		return err
	}
	for _, l := range loads() {
		cfg.report("steady: %d events/s", l.rate)
		r, err := w.steady(ctx, l)
		if err != nil {
			return err
		}
		key := strconv.Itoa(l.rate)
		f.Latency[key], f.SteadyCPU[key], f.Written[key] = r.Latency, r.CPU, r.Written
	}
	return w.stopRelay(ctx)
}

func (w *world) idleReported(ctx context.Context, busy bool) (figure, error) {
	w.cfg.report("idle, busy neighbour: %t", busy)
	return w.idle(ctx, busy)
}

// measureDrain leaves the relay running.
func measureDrain(ctx context.Context, w *world, f *figures) error {
	decodeSlot := w.name + "_decode"
	if err := w.makeSlot(ctx); err != nil {
		return err
	}
	if _, err := w.conn.Exec(ctx, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, decodeSlot); err != nil {
		return err
	}
	w.cfg.report("backlog: %d events", w.cfg.events)
	if err := w.backlog(ctx, 0); err != nil {
		return err
	}
	in := input{
		Database: w.database, Slot: decodeSlot, Publication: w.name, NATS: w.natsURL, Subject: w.name + ".{topic}",
		Events: w.cfg.events, Payload: w.cfg.payload, PerTx: w.cfg.perTx, Headers: w.cfg.headers,
	}
	w.cfg.report("decode only")
	decode, err := runAlone(ctx, childDecode, in)
	if err != nil {
		return err
	}
	w.cfg.report("publish only")
	publish, err := w.publishAlone(ctx, in)
	if err != nil {
		return err
	}
	w.cfg.report("drain")
	d, err := w.drain(ctx)
	if err != nil {
		return err
	}
	f.set(decode, publish, d)
	// A second slot would make the server read the WAL of what follows for nobody.
	_, err = w.conn.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, decodeSlot)
	return err
}

// publishAlone publishes into a stream of its own, which is gone afterwards.
func (w *world) publishAlone(ctx context.Context, in input) (a alone, err error) {
	in.Stream = newName()
	in.Subject = in.Stream + ".{topic}"
	if err := w.makeStream(ctx, in.Stream); err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, w.js.DeleteStream(context.WithoutCancel(ctx), in.Stream)) }()
	return runAlone(ctx, childPublish, in)
}

// report tells a person what is going on.
func (c config) report(format string, args ...any) {
	if c.progress != nil {
		_, _ = fmt.Fprintf(c.progress, "bench: "+format+"\n", args...)
	}
}
