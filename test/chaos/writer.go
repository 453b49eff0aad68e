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
	rate   int // events a second, all writers together
	acked  atomic.Int64
	pause  atomic.Bool // they let go of the database: a smart shutdown waits for its clients
	idle   atomic.Int32
	all    sync.WaitGroup
	cancel context.CancelFunc
}

func startLoad(ctx context.Context, url string, rate int, seed uint64) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{url: url, rate: rate, cancel: cancel}
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
	began := time.Now()
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for i := range n {
			if err := insert(ctx, tx); err != nil {
				return err
			}
			if i == n/2 && rng.IntN(5) == 0 {
				err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
					return errors.Join(insert(ctx, savepoint), errRollback)
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
	l.acked.Add(int64(n))
	if rng.IntN(50) != 0 { // else a burst
		sleep(ctx, time.Duration(n)*time.Second*writers/time.Duration(l.rate)-time.Since(began))
	}
	return nil
}

func insert(ctx context.Context, tx pgx.Tx) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO outbox (id, topic, payload, aggregate_id) VALUES ($1, 'order.placed', '{}', $2)`, id.String(), id.String()[:2])
	return err
}
