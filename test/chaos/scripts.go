package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// script is a deliberate fault of the relay, the faults around it that bring it to light, and the check that must see it.
type script struct {
	mutant  string
	only    string // see --only
	foreign bool
	check   string
	count   func(*result) int // what the check has found
}

func scripts() []script {
	return []script{
		{mutant: "confirm-on-receive", only: "leader killed before the publish", check: "confirmed early", count: func(r *result) int { return r.ConfirmedEarly }},
		{mutant: "no-tail", only: "leader killed before the confirmation", check: "doubled", count: func(r *result) int { return r.Doubled }},
		{mutant: "no-fence", only: "publishes arrive when the leader was replaced", check: "doubled", count: func(r *result) int { return r.Doubled }},
		{mutant: "skip-by-lsn", only: "overtaken by a foreign message", foreign: true, check: "lost", count: func(r *result) int { return r.Lost }},
	}
}

// options are those of the run that a script is.
func (s script) options(seed uint64, logs string) options {
	return options{
		seconds: 6, every: 300 * time.Millisecond, rate: 500, seed: seed, mutant: s.mutant, only: s.only, foreign: s.foreign, logs: logs,
	}
}

// playScripts plays all scripts and tells which check has seen what. It is an error if a mutant was not seen.
func playScripts(ctx context.Context, opts options, out io.Writer) (err error) {
	logs, err := os.MkdirTemp("", "relay-chaos-logs-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(logs)) }()
	var missed []error
	for _, s := range scripts() {
		r, err := wreak(ctx, s.options(opts.seed, logs), out)
		if err != nil {
			return fmt.Errorf("mutant %s: %w", s.mutant, err)
		}
		n := s.count(r)
		_, _ = fmt.Fprintf(out, "mutant %s: %s %d (lost %d, doubled %d, reordered %d, phantoms %d, confirmed early %d)\n\n",
			s.mutant, s.check, n, r.Lost, r.Doubled, r.Reordered, r.Phantoms, r.ConfirmedEarly)
		if n == 0 {
			missed = append(missed, fmt.Errorf("mutant %s: nothing %s", s.mutant, s.check))
		}
	}
	return errors.Join(missed...)
}
