package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
)

// The parts of the growth.
const (
	partTransaction = "events in one transaction"
	partPayload     = "payload"
	partPerTx       = "events a transaction"
	partTable       = "rows in the table"
	partForeign     = "foreign rows an event"
	partReplicas    = "replicas"
	partOutage      = "outage"
)

// grown is one drain of the growth part.
type grown struct {
	Part    string `json:"part"`
	Value   string `json:"value"`
	Events  int    `json:"events"`
	Rate    figure `json:"events_per_second"`
	Seconds figure `json:"seconds"` // from the relay's start to the last event
	PeakRSS figure `json:"rss_peak_mib"`
}

// growth is one drain to be made.
type growth struct {
	part, value   string
	events, perTx int
	payload       int
	foreign       int
	replicas      bool
}

// plan lists the drains, each with data of its own. Where payloads grow the backlog is kept to about 200 MB.
func plan(cfg config) []growth {
	var all []growth
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		all = append(all, growth{part: partTransaction, value: words(n), events: n, perTx: n, payload: cfg.payload})
	}
	for _, b := range []struct {
		text  string
		bytes int
	}{{"100 B", 100}, {"1 KB", 1000}, {"10 KB", 10_000}, {"100 KB", 100_000}} {
		all = append(all, growth{part: partPayload, value: b.text, events: min(100_000, 200_000_000/b.bytes), perTx: 10, payload: b.bytes})
	}
	for _, n := range []int{1, 10, 1000} {
		all = append(all, growth{part: partPerTx, value: words(n), events: 100_000, perTx: n, payload: cfg.payload})
	}
	return append(all,
		growth{part: partForeign, value: "50", events: 20_000, perTx: 10, payload: cfg.payload, foreign: 50},
		growth{part: partReplicas, value: "3", events: 100_000, perTx: 10, payload: cfg.payload, replicas: true},
	)
}

func words(n int) string { return humanize.CommafWithDigits(float64(n), 0) }

func grow(ctx context.Context, s *servers, cfg config) ([]grown, error) {
	cfg.profile = ""
	var all []grown
	for _, g := range plan(cfg) {
		if g.replicas && s.nats == nil {
			continue // the user's broker is what it is
		}
		cfg.report("growth: %s %s", g.part, g.value)
		one, err := g.measure(ctx, s, cfg)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", g.part, g.value, err)
		}
		all = append(all, one)
	}
	tables, err := growTable(ctx, s, cfg)
	if err != nil {
		return nil, err
	}
	all = append(all, tables...)
	if s.nats == nil {
		return all, nil
	}
	outage, err := growOutage(ctx, s, cfg)
	return append(all, outage), err
}

func (g growth) measure(ctx context.Context, s *servers, cfg config) (one grown, err error) {
	cfg.events, cfg.perTx, cfg.payload = g.events, g.perTx, g.payload
	var flags []string
	if g.replicas {
		if s, err = s.withCluster(ctx); err != nil {
			return one, err
		}
		defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
		flags = []string{"--replicas", "3"}
		if err := s.settled(ctx); err != nil {
			return one, err
		}
	}
	w, err := newWorld(ctx, s, cfg, flags...)
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, w.close(context.WithoutCancel(ctx))) }()
	d, err := w.drainFresh(ctx, g.foreign)
	return grown{g.part, g.value, g.events, d.Rate, d.Seconds, d.PeakRSS}, err
}

// settled waits until a new cluster has found its leader.
func (s *servers) settled(ctx context.Context) error {
	return poll(ctx, 30*time.Second, func() (bool, error) {
		_, err := s.js.AccountInfo(ctx)
		return err == nil, err
	})
}

// growTable drains backlogs written to tables of different size, in turns: the speed of a machine drifts, and what is
// compared should drift together. The middle one of each three counts.
func growTable(ctx context.Context, s *servers, cfg config) (all []grown, err error) {
	sizes := []int{0, 1_000_000, 10_000_000}
	const turns = 3
	cfg.events, cfg.perTx = min(cfg.events, 200_000), 10
	worlds, drains := make([]*world, len(sizes)), make([][]drained, len(sizes))
	defer func() {
		for _, w := range worlds {
			if w != nil {
				err = errors.Join(err, w.close(context.WithoutCancel(ctx)))
			}
		}
	}()
	for i, rows := range sizes {
		cfg.report("growth: a table of %d rows", rows)
		if worlds[i], err = newWorld(ctx, s, cfg); err != nil {
			return nil, err
		}
		if err := worlds[i].fill(ctx, rows); err != nil {
			return nil, err
		}
	}
	for range turns {
		for i, w := range worlds {
			d, err := w.drainFresh(ctx, 0)
			if err != nil {
				return nil, err
			}
			drains[i] = append(drains[i], d)
			if err := w.js.DeleteStream(ctx, w.name); err != nil {
				return nil, err
			}
			if err := w.makeStream(ctx, w.name); err != nil {
				return nil, err
			}
		}
	}
	for i, rows := range sizes {
		slices.SortFunc(drains[i], func(a, b drained) int { return int(a.Rate - b.Rate) })
		d := drains[i][turns/2]
		all = append(all, grown{partTable, words(rows), cfg.events, d.Rate, d.Seconds, d.PeakRSS})
	}
	return all, nil
}

// growOutage freezes the broker while events are written as fast as the database takes them, then lets the relay catch up.
func growOutage(ctx context.Context, s *servers, cfg config) (one grown, err error) {
	cfg.report("growth: an outage of %s", cfg.outage)
	cfg.perTx = 10
	w, err := newWorld(ctx, s, cfg)
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, w.close(context.WithoutCancel(ctx))) }()
	if err := w.makeSlot(ctx); err != nil {
		return one, err
	}
	if err := w.startRelay(ctx); err != nil {
		return one, err
	}
	if err := w.leading(ctx); err != nil {
		return one, err
	}
	if err := s.nats.Process().Freeze(ctx); err != nil {
		return one, err
	}
	events, err := w.flood(ctx, cfg.outage)
	if err = errors.Join(err, s.nats.Process().Thaw()); err != nil {
		return one, err
	}
	thawed := time.Now()
	state, err := w.until(ctx, events)
	if err != nil {
		return one, err
	}
	usage, err := w.relay.Usage()
	if err != nil {
		return one, err
	}
	took := figure(state.LastTime.Sub(thawed).Seconds())
	one = grown{partOutage, cfg.outage.String() + ", writers at full speed", events, figure(events) / took, took, figure(usage.PeakRSSBytes) / (1 << 20)}
	return one, w.stopRelay(ctx)
}

// leading waits until the relay publishes.
func (w *world) leading(ctx context.Context) error {
	if _, err := w.conn.Exec(ctx, w.insert("1", "1")); err != nil {
		return err
	}
	_, err := w.until(ctx, 1)
	return err
}

// flood commits transactions as fast as one connection can, and returns how many events there are.
func (w *world) flood(ctx context.Context, d time.Duration) (events int, err error) {
	_, err = w.conn.Exec(ctx, fmt.Sprintf(`DO $$ DECLARE until timestamptz := clock_timestamp() + make_interval(secs => %f); BEGIN
		WHILE clock_timestamp() < until LOOP %s; COMMIT; END LOOP; END $$`, d.Seconds(), w.insert("1", fmt.Sprint(w.cfg.perTx))))
	if err == nil {
		err = w.conn.QueryRow(ctx, `SELECT count(*) FROM outbox`).Scan(&events)
	}
	return events, err
}
