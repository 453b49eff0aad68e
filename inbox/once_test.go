package inbox

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Run(m)) }

// shop is a database with processed events and something to do with them.
func shop(t *testing.T) (*pgxpool.Pool, string) {
	t.Helper()
	url := sandbox.Database(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), DDL()+`CREATE TABLE bookings (event_id text)`); err != nil {
		t.Fatal(err)
	}
	return pool, url
}

func book(id string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO bookings VALUES ($1)`, id)
		return err
	}
}

func bookings(t *testing.T, pool *pgxpool.Pool, id string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM bookings WHERE event_id = $1`, id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOnce(t *testing.T) {
	t.Parallel()
	pool, _ := shop(t)
	process := func(consumer, id string, effect func(context.Context, pgx.Tx) error) (first bool, err error) {
		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			first, err = Once(t.Context(), tx, consumer, id, effect)
			return err
		})
		return first, err
	}
	wrong := errors.New("out of stock")
	if first, err := process("ship", "e1", func(context.Context, pgx.Tx) error { return wrong }); !first || !errors.Is(err, wrong) {
		t.Errorf("a failing effect: %v, %v", first, err)
	}
	for i, want := range []bool{true, false, false} { // the failure has left nothing
		if first, err := process("ship", "e1", book("e1")); first != want || err != nil {
			t.Errorf("delivery %d: %v, %v", i+1, first, err)
		}
	}
	if first, err := process("mail", "e1", book("e1")); !first || err != nil {
		t.Errorf("another consumer: %v, %v", first, err)
	}
	if n := bookings(t, pool, "e1"); n != 2 {
		t.Errorf("%d effects of two consumers", n)
	}
	for _, args := range [][2]string{{"", "e"}, {"c", ""}} {
		if _, err := process(args[0], args[1], book("x")); !errors.Is(err, ErrArgument) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestOnceSQL(t *testing.T) {
	t.Parallel()
	pool, url := shop(t)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i, commit := range []bool{false, true, true} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		first, err := OnceSQL(t.Context(), tx, "ship", "e1", func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO bookings VALUES ('e1')`)
			return err
		})
		if err != nil || first != (i < 2) {
			t.Errorf("delivery %d: %v, %v", i+1, first, err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	if n := bookings(t, pool, "e1"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// Many consumers get the same message at once; some of them die before their commit.
func TestOnceConcurrently(t *testing.T) {
	t.Parallel()
	pool, _ := shop(t)
	died := errors.New("died before the commit")
	var all sync.WaitGroup
	var ran atomic.Int32
	for i := range 8 {
		all.Go(func() {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				first, err := Once(t.Context(), tx, "ship", "e1", book("e1"))
				if first && ran.Add(1) <= 3 {
					return died
				}
				return err
			})
			if err != nil && !errors.Is(err, died) {
				t.Errorf("consumer %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if n := bookings(t, pool, "e1"); n != 1 || ran.Load() != 4 {
		t.Errorf("%d effects, tried %d times; want 1 after 3 deaths", n, ran.Load())
	}
}
