package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const writers = 4

// load is the application: writers that go on until they are told to stop, whatever happens to their database.
type load struct {
	url    string
	rate   int // events a second, all writers together: after an outage they make up for it
	began  time.Time
	acked  atomic.Int64
	pause  atomic.Bool // they let go of the database: a smart shutdown waits for its clients
	idle   atomic.Int32
	all    sync.WaitGroup
	cancel context.CancelFunc
}

func startLoad(ctx context.Context, url string, rate int, seed uint64) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{url: url, rate: rate, began: time.Now(), cancel: cancel}
	for i := range writers {
		rng := rand.New(rand.NewPCG(seed, uint64(i)+1)) //nolint:gosec // repeatable on purpose
		l.all.Go(func() { l.writer(ctx, rng, i == 0) })
	}
	return l
}

func (l *load) stop() {
	l.cancel()
	l.all.Wait()
}

// writer writes on one connection after the other. An error is a part of the play: what committed all the same, the record
// tells.
func (l *load) writer(ctx context.Context, rng *rand.Rand, slow bool) {
	for ctx.Err() == nil {
		if l.pause.Load() {
			l.idle.Add(1)
			for l.pause.Load() && sleep(ctx, pollEvery) {
			}
			l.idle.Add(-1)
			continue
		}
		conn, err := pgx.Connect(ctx, l.url)
		if err != nil {
			sleep(ctx, 100*time.Millisecond)
			continue
		}
		for err == nil && ctx.Err() == nil && !l.pause.Load() {
			err = l.transaction(ctx, conn, rng, slow)
		}
		_ = conn.Close(context.WithoutCancel(ctx)) // it may be gone
	}
}

var errRollback = errors.New("rolled back on purpose")

// transaction writes 1 to 200 events, mostly few, in one transaction that is sometimes rolled back, in part or whole, and,
// by the slow writer, sometimes held open while others overtake it.
func (l *load) transaction(ctx context.Context, conn *pgx.Conn, rng *rand.Rand, slow bool) error {
	n := 1 + rng.IntN(4)
	if rng.IntN(40) == 0 {
		n = 1 + rng.IntN(200)
	}
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for i := range n {
			if err := insert(ctx, tx, rng); err != nil {
				return err
			}
			if i == n/2 && rng.IntN(5) == 0 {
				err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
					return errors.Join(insert(ctx, savepoint, rng), errRollback)
				})
				if !errors.Is(err, errRollback) {
					return err
				}
			}
		}
		if slow && rng.IntN(10) == 0 {
			sleep(ctx, time.Duration(rng.IntN(2000))*time.Millisecond)
		}
		if rng.IntN(10) == 0 {
			return errRollback
		}
		return nil
	})
	switch {
	case errors.Is(err, errRollback):
		return nil
	case err != nil:
		return err
	}
	due := time.Duration(l.acked.Add(int64(n))) * time.Second / time.Duration(l.rate)
	if rng.IntN(50) != 0 { // else a burst
		sleep(ctx, due-time.Since(l.began))
	}
	return nil
}

// hugeBytes is the largest payload; most are tiny.
const hugeBytes = 400 << 10

func insert(ctx context.Context, tx pgx.Tx, rng *rand.Rand) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	fill := 0
	switch rng.IntN(200) {
	case 0:
		fill = rng.IntN(hugeBytes)
	case 1, 2, 3, 4, 5, 6, 7, 8:
		fill = rng.IntN(4 << 10)
	}
	_, err = tx.Exec(ctx, `INSERT INTO outbox (id, topic, payload, aggregate_id) VALUES ($1, 'order.placed', jsonb_build_object('fill', repeat('x', $3)), $2)`,
		id.String(), id.String()[:2], fill)
	return err
}
