package app

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-1cfd9858/relay/pump"
	"github.com/seed-1cfd9858/relay/retention"
)

// keeper deletes what is old and delivered while this relay leads. What goes wrong with it is told and tried again, and never
// stops the relay.
type keeper struct {
	cfg    runConfig
	status func() pump.Status

	deleted     atomic.Uint64 // rows; a partition's are not counted
	lastSuccess atomic.Int64  // Unix seconds, 0: never
	until       atomic.Int64  // Unix seconds at which the last partition ends, 0: unknown, or not partitioned
}

// The rhythm of passes: a tenth of the age, within these bounds.
const (
	retentionMostOften = time.Minute
	retentionLeast     = time.Hour

	retentionWait  = 30 * time.Second   // for the confirmed LSN
	aheadWarning   = 3 * 24 * time.Hour // of partitions
	retentionLimit = 15 * time.Minute   // of a pass
)

// register makes its figures public.
func (k *keeper) register(registry *prometheus.Registry) {
	counter := func(name, help string, f func() float64) {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, f))
	}
	gauge := func(name, help string, f func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	known := func(v *atomic.Int64, tell func(time.Time) float64) func() float64 {
		return func() float64 {
			if n := v.Load(); n != 0 {
				return tell(time.Unix(n, 0))
			}
			return math.NaN()
		}
	}
	counter("relay_retention_deleted_rows_total", "Rows of the outbox that --retention has deleted.", func() float64 { return float64(k.deleted.Load()) })
	gauge("relay_retention_last_success_timestamp_seconds", "When --retention last went through the outbox, or began to try; NaN without it.",
		known(&k.lastSuccess, func(at time.Time) float64 { return float64(at.Unix()) }))
	gauge("relay_outbox_partitions_ahead_seconds", "How long the outbox has partitions from now on, NaN if it is not partitioned by created_at.",
		known(&k.until, func(at time.Time) float64 { return time.Until(at).Seconds() }))
}

// start begins, if a retention was asked for. The result ends it.
func (k *keeper) start(ctx context.Context) (stop func()) {
	if k.cfg.retention == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { k.run(ctx) })
	return func() {
		cancel()
		all.Wait()
	}
}

func (k *keeper) run(ctx context.Context) {
	every := max(retentionMostOften, min(k.cfg.retention/10, retentionLeast))
	timer := time.NewTimer(retentionMostOften / 6)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(every)
		if s := k.status(); s.Leading() {
			k.lastSuccess.CompareAndSwap(0, time.Now().Unix()) // an alert waits from here on
			k.pass(ctx)
		}
	}
}

// pass makes partitions for the days to come, then deletes.
func (k *keeper) pass(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, retentionLimit)
	defer cancel()
	log, c := k.cfg.log, k.cfg.common
	err := longEnough(ctx, c, k.cfg.retention)
	if err == nil {
		err = withPostgres(ctx, c, func(ctx context.Context, conn *pgx.Conn) error {
			k.keepAhead(ctx, conn)
			result, err := retention.Prune(ctx, conn, retention.Config{
				Table: c.slot.Table, Slot: c.slot.Slot, Publication: c.slot.Publication, OlderThan: k.cfg.retention, Wait: retentionWait,
			})
			k.deleted.Add(uint64(result.Rows))
			if result.Rows > 0 || len(result.Partitions) > 0 {
				log.Info("old events are deleted", "rows", result.Rows, "partitions", result.Partitions, "older_than", k.cfg.retention)
			}
			if result.Earlier > 0 {
				log.Warn("old rows stay: they are older than the publication and were never sent", "rows", result.Earlier)
			}
			return err
		})
		if err != nil {
			err = pruneError(c, err)
		}
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.Warn("old events could not be deleted, trying again later", "reason", oneLine(err.Error()), "advice", advice(err))
	default:
		k.lastSuccess.Store(time.Now().Unix())
	}
}

func (k *keeper) keepAhead(ctx context.Context, conn *pgx.Conn) {
	now := time.Now()
	table := k.cfg.slot.Table
	made, partitioned, err := retention.KeepAhead(ctx, conn, table, now)
	if !partitioned && err == nil {
		return
	}
	if len(made) > 0 {
		k.cfg.log.Info("partitions are made", "partitions", made)
	}
	until, errAhead := retention.Ahead(ctx, conn, table, now)
	if errAhead == nil {
		k.until.Store(until.Unix())
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case errAhead == nil && until.Sub(now) < aheadWarning:
		k.cfg.log.Error("the partitions end soon: rows of a later day will be refused", "until", until, "reason", oneLine(err.Error()),
			"advice", advice(pruneError(k.cfg.common, err)))
	default:
		k.cfg.log.Warn("partitions could not be made, trying again later", "until", until, "reason", oneLine(err.Error()),
			"advice", advice(pruneError(k.cfg.common, err)))
	}
}
