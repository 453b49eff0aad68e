package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-1cfd9858/relay/examples/orders/order"
	"github.com/seed-1cfd9858/relay/examples/orders/shipping"
	"github.com/seed-1cfd9858/relay/inbox"
	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m)) }

// shop is an order service beside a running relay.
type shop struct {
	*harness.World
	orders *order.Service
	db     *pgxpool.Pool
}

func openShop(t *testing.T) *shop {
	t.Helper()
	w := harness.New(t, harness.Config{})
	for _, ddl := range []string{order.Tables, inbox.DDL(), shipping.Tables} {
		w.Exec(ddl)
	}
	pool, err := pgxpool.New(t.Context(), w.Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w.Start()
	return &shop{World: w, orders: &order.Service{DB: pool, Log: sandbox.Logger(t)}, db: pool}
}

// place places n orders and cancels every third. It returns those that are to be shipped.
func (s *shop) place(t *testing.T, n int) map[string]bool {
	t.Helper()
	open := map[string]bool{}
	for i := range n {
		o, err := s.orders.Place(t.Context(), "ann", int64(100+i))
		if err != nil {
			t.Fatal(err)
		}
		if i%3 != 0 {
			open[o.ID.String()] = true
			continue
		}
		if err := s.orders.Cancel(t.Context(), o.ID); err != nil {
			t.Fatal(err)
		}
	}
	return open
}

// shipped returns how often each order is in the shipments of a consumer.
func (s *shop) shipped(ctx context.Context, consumer string) (map[string]int, error) {
	rows, err := s.db.Query(ctx, `SELECT order_id::text FROM shipments WHERE consumer = $1`, consumer)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]int{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		all[id]++
	}
	return all, rows.Err()
}

// processed counts the events that a consumer has processed.
func (s *shop) processed(ctx context.Context, consumer string) (n int, err error) {
	err = s.db.QueryRow(ctx, `SELECT count(*) FROM processed_events WHERE consumer = $1`, consumer).Scan(&n)
	return n, err
}

// expectShipped waits until a consumer has processed so many events, and compares.
func (s *shop) expectShipped(t *testing.T, consumer string, events int, want map[string]bool) {
	t.Helper()
	sandbox.WaitFor(t, harness.Limit, consumer+" has processed everything", func() (bool, error) {
		n, err := s.processed(t.Context(), consumer)
		return n == events, err
	})
	got, err := s.shipped(t.Context(), consumer)
	if err != nil {
		t.Fatal(err)
	}
	for id, n := range got {
		if !want[id] || n != 1 {
			t.Errorf("order %s is shipped %d times, want it %t", id, n, want[id])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d orders are shipped, want %d", len(got), len(want))
	}
}

// pythonEnv names the interpreter that has the packages of shipping.py.
const pythonEnv = "RELAY_TEST_PYTHON"

// The consumer in Python gives each event its one effect, in order, although it is killed in between.
func TestShippingInPython(t *testing.T) {
	t.Parallel()
	python := os.Getenv(pythonEnv)
	if python == "" {
		python = "python3"
		if err := exec.CommandContext(t.Context(), python, "-c", "import nats, psycopg").Run(); err != nil {
			t.Skipf("no python3 with nats-py and psycopg (%s names one): %v", pythonEnv, err)
		}
	}
	const consumer = "shipping-python"
	s := openShop(t)
	start := func() *sandbox.Process {
		p, err := sandbox.StartProcess(t.Context(), sandbox.ProcessConfig{
			Path: python, Args: []string{"shipping.py"},
			Env: []string{"DATABASE_URL=" + s.Database, "NATS_URL=" + s.NC.ConnectedUrl(), "STREAM=" + s.StreamName},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = p.Close()
			if t.Failed() {
				t.Logf("shipping.py:\n%s", p.Tail())
			}
		})
		return p
	}
	first := start()
	open := s.place(t, 30)
	sandbox.WaitFor(t, harness.Limit, "some events are processed", func() (bool, error) {
		n, err := s.processed(t.Context(), consumer)
		return n > 5, err
	})
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	for id := range s.place(t, 30) {
		open[id] = true
	}
	start()
	s.expectShipped(t, consumer, 80, open)
}

// The two services in Go: over HTTP, and through relay.
func TestOrdersAreShipped(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	consumer, err := s.JS.CreateConsumer(ctx, s.StreamName, inbox.ConsumerConfig(shipping.Name))
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- shipping.Consume(ctx, s.db, consumer) }()
	open := s.place(t, 60)
	s.expectShipped(t, shipping.Name, 80, open)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An order and its event commit together or not at all.
func TestOrderHTTP(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	server := httptest.NewServer(s.orders.Handler())
	defer server.Close()
	do := func(method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	code, body := do("POST", "/orders", `{"customer": "ann", "cents": 1250}`)
	var placed order.Order
	if err := json.Unmarshal([]byte(body), &placed); code != http.StatusCreated || err != nil || placed.Cents != 1250 {
		t.Fatalf("%d %s", code, body)
	}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/orders", `{"customer": "", "cents": 1}`, http.StatusUnprocessableEntity},
		{"POST", "/orders", `{`, http.StatusBadRequest},
		{"DELETE", "/orders/" + placed.ID.String(), "", http.StatusNoContent},
		{"DELETE", "/orders/" + placed.ID.String(), "", http.StatusNotFound},
		{"DELETE", "/orders/x", "", http.StatusBadRequest},
	} {
		if code, body := do(c.method, c.path, c.body); code != c.want {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, code, body)
		}
	}
	s.WaitCount(2) // placed and cancelled, and nothing of what was refused
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"sell"}, {"order", "ship"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
