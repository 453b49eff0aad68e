package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// chunk is how many schedules one process runs.
const chunk = 500

// total is what many schedules came to.
type total struct {
	Schedules int       `json:"schedules"`
	First     uint64    `json:"first_seed"`
	Events    int       `json:"events"`
	Seconds   float64   `json:"seconds"`
	Simulated float64   `json:"simulated_seconds"`
	PerSecond float64   `json:"schedules_per_second"`
	Failed    []outcome `json:"failed"`
}

// runMany runs schedules in processes of one core each.
func (o options) runMany(ctx context.Context, w io.Writer) (bool, error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	sum, err := o.spread(ctx, self)
	if err != nil {
		return false, err
	}
	if o.json {
		return len(sum.Failed) == 0, json.NewEncoder(w).Encode(sum)
	}
	for _, f := range sum.Failed {
		_, _ = fmt.Fprintf(w, "seed %d: %s: %s\n", f.Seed, f.Rule, f.Text)
	}
	_, err = fmt.Fprintf(w, "%d schedules from seed %d, %d events, %.0f s simulated in %.1f s, %.0f schedules a second, %d failed\n",
		sum.Schedules, sum.First, sum.Events, sum.Simulated, sum.Seconds, sum.PerSecond, len(sum.Failed))
	return len(sum.Failed) == 0, err
}

// spread gives the schedules to processes of a program, and stops at the first that fails unless told to go on.
func (o options) spread(ctx context.Context, program string) (total, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sum := total{First: o.seed, Failed: []outcome{}}
	began := time.Now()
	var (
		mu     sync.Mutex
		next   int
		broken error
		wg     sync.WaitGroup
	)
	take := func() (uint64, int) {
		mu.Lock()
		defer mu.Unlock()
		n := min(chunk, o.schedules-next, max(10, o.schedules/o.jobs/4))
		if ctx.Err() != nil || n <= 0 {
			return 0, 0
		}
		first := o.seed + uint64(next) //nolint:gosec // not negative
		next += n
		return first, n
	}
	count := func(one outcome) {
		mu.Lock()
		defer mu.Unlock()
		sum.Schedules++
		sum.Events += one.Events
		sum.Simulated += one.Simulated
		if one.Rule != "" && ctx.Err() == nil {
			sum.Failed = append(sum.Failed, one)
			if !o.keepOn {
				cancel()
			}
		}
	}
	for range o.jobs {
		wg.Go(func() {
			for {
				first, n := take()
				if n == 0 {
					return
				}
				if err := runChunk(ctx, program, first, n, count); err != nil && ctx.Err() == nil {
					mu.Lock()
					broken = errors.Join(broken, err)
					mu.Unlock()
					cancel()
				}
			}
		})
	}
	wg.Wait()
	sum.Seconds = time.Since(began).Seconds()
	sum.PerSecond = float64(sum.Schedules) / sum.Seconds
	return sum, broken
}

// runChunk runs seeds first..first+n-1 in processes, a new one after each that fails.
func runChunk(ctx context.Context, program string, first uint64, n int, count func(outcome)) error {
	for n > 0 && ctx.Err() == nil {
		done, err := runWorker(ctx, program, first, n, count)
		if err != nil {
			return err
		}
		first += uint64(done) //nolint:gosec // not negative
		n -= done
	}
	return nil
}

// The rules that a process breaks as a whole.
const (
	rulePanic = "the relay does not panic"
)

func runWorker(ctx context.Context, program string, first uint64, n int, count func(outcome)) (int, error) {
	cmd := exec.CommandContext(ctx, program, "-worker", "-seed", strconv.FormatUint(first, 10), "-schedules", strconv.Itoa(n))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	done := 0
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one outcome
		if json.Unmarshal(lines.Bytes(), &one) != nil {
			_, _ = said.Write(append(lines.Bytes(), '\n')) // package testing tells of a panic here
			continue
		}
		done++
		count(one)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return n, nil
	case err == nil, errors.As(err, &exit) && exit.ExitCode() == exitViolation:
		return done, nil
	case errors.As(err, &exit):
		count(outcome{Seed: first + uint64(done), Rule: rulePanic, Text: head(&said)}) //nolint:gosec // not negative
		return done + 1, nil
	}
	return done, fmt.Errorf("run %s: %w", program, err)
}

// head returns the beginning of what a process said.
func head(r io.Reader) string {
	b := make([]byte, 4000)
	n, _ := io.ReadFull(r, b)
	return string(b[:n])
}
