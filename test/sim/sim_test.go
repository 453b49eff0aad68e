package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The budget of a test run. Under the race detector a schedule takes ten times as long, so the time decides.
const (
	fixedSeeds = 400
	fixedTime  = 12 * time.Second
	freshTime  = 8 * time.Second
)

// TestSeeds runs the same schedules each time, as many as the time allows, then some that nobody has run before.
func TestSeeds(t *testing.T) {
	defer oneCore()()
	began := time.Now()
	n := uint64(0)
	for n < fixedSeeds && time.Since(began) < fixedTime {
		n++
		try(t, draw(n))
	}
	if testing.Short() {
		return
	}
	first := uint64(time.Now().Unix()) * 1_000_000 //nolint:gosec // positive
	fresh := uint64(0)
	for began = time.Now(); time.Since(began) < freshTime; fresh++ {
		try(t, draw(first+fresh))
	}
	t.Logf("seeds 1 to %d and %d fresh ones from %d", n, fresh, first)
}

// TestCorpus runs every schedule that has ever failed, cut down to the steps that mattered.
func TestCorpus(t *testing.T) {
	defer oneCore()()
	paths, err := filepath.Glob("testdata/corpus/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var plan Plan
			if err := json.Unmarshal(b, &plan); err != nil {
				t.Fatal(err)
			}
			for range 3 { // what Go leaves to chance differs
				try(t, plan)
			}
		})
	}
}

// oneCore makes schedules as repeatable as they are outside of a test, and returns what ends that.
func oneCore() func() {
	old := runtime.GOMAXPROCS(1)
	return func() { runtime.GOMAXPROCS(old) }
}

func try(t *testing.T, plan Plan) {
	t.Helper()
	res := run(t, plan)
	if res.violation == nil {
		return
	}
	path := filepath.Join(t.ArtifactDir(), "history.txt")
	var text strings.Builder
	printResult(&text, plan, res)
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Error(err)
	}
	t.Fatalf("seed %d: %v\n%s\nagain: go run ./test/sim --show %d", plan.Seed, res.violation, lastLines(text.String(), 60), plan.Seed)
}

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
