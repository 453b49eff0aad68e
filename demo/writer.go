package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/examples/orders/order"
)

// The writers are the application: some of them at a time, so that transactions overtake each other.
const (
	writers       = 2
	maxOrders     = 3 // in one transaction
	rollbackEvery = 8 // one transaction in so many is rolled back and tried again
)

// orders counts what the writers have done. It is safe for concurrent use.
type orders struct {
	mu         sync.Mutex
	left       int      // of the part that is being written
	committed  []string // order ids, each with one event, in no order
	rolledBack int      // events
	commits    int      // transactions
	rollbacks  int
}

// take reserves up to n orders.
func (o *orders) take(n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = min(n, o.left)
	o.left -= n
	return n
}

func (o *orders) count() (committed, rolledBack int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.committed), o.rolledBack
}

func (o *orders) ended(ids []string, committed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if committed {
		o.committed = append(o.committed, ids...)
		o.commits++
		return
	}
	o.rolledBack += len(ids)
	o.rollbacks++
}

// write has the writers commit n events, and returns when they have.
func (o *orders) write(ctx context.Context, url string, n int) error {
	o.mu.Lock()
	o.left = n
	o.mu.Unlock()
	errs := make([]error, writers)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() { errs[i] = o.writer(ctx, url) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (o *orders) writer(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("write orders: %w", err)
	}
	defer closeConn(ctx, conn) //nolint:errcheck // what matters is committed
	for i := 0; ; i++ {
		n := o.take(1 + i%maxOrders)
		if n == 0 {
			return nil
		}
		outcomes := []bool{true}
		if i%rollbackEvery == 0 {
			outcomes = []bool{false, true}
		}
		for _, commit := range outcomes {
			ids, err := checkout(ctx, conn, n, commit)
			if err != nil {
				return fmt.Errorf("write orders: %w", err)
			}
			o.ended(ids, commit)
		}
	}
}

// checkout has the order service place orders in one transaction, and returns their ids.
func checkout(ctx context.Context, conn *pgx.Conn, n int, commit bool) ([]string, error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // does nothing after the commit
	var ids []string
	for i := range n {
		o, err := order.Place(ctx, tx, fmt.Sprintf("customer-%d", i), int64(100+50*i))
		if err != nil {
			return nil, err
		}
		ids = append(ids, o.ID.String())
	}
	if !commit {
		return ids, tx.Rollback(ctx)
	}
	return ids, tx.Commit(ctx)
}
