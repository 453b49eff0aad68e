package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/seed-1cfd9858/relay/test/mutant"
)

// catch is what came of a mutant.
type catch struct {
	Mutant    string  `json:"mutant"`
	About     string  `json:"about"`
	Caught    bool    `json:"caught"`
	Rule      string  `json:"rule,omitempty"`
	Text      string  `json:"text,omitempty"`
	Seed      uint64  `json:"seed,omitempty"`
	Schedules int     `json:"schedules"` // until it was caught
	Seconds   float64 `json:"seconds"`
}

// runMutants tries every mutant with the same seeds, and reports which check caught it after how many schedules.
func (o options) runMutants(ctx context.Context, w io.Writer) (bool, error) {
	root, err := mutant.Repository(ctx)
	if err != nil {
		return false, err
	}
	var names []string
	if o.only != "" {
		names = []string{o.only}
	}
	mutants, err := mutant.Read(root, names...)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "sim-mutants-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	all := true
	for _, m := range mutants {
		c, err := o.try(ctx, m, root, dir)
		if err != nil {
			return false, err
		}
		all = all && c.Caught
		o.tell(w, c)
	}
	return all, ctx.Err()
}

func (o options) try(ctx context.Context, m mutant.Mutant, root, dir string) (catch, error) {
	c := catch{Mutant: m.Name, About: m.About}
	program, err := m.Build(ctx, root, dir, "./test/sim")
	if err != nil {
		return c, err
	}
	o.keepOn = false
	sum, err := o.spread(ctx, program)
	if err != nil {
		return c, err
	}
	c.Schedules, c.Seconds = sum.Schedules, sum.Seconds
	if len(sum.Failed) > 0 {
		f := sum.Failed[0]
		c.Caught, c.Rule, c.Text, c.Seed = true, string(f.Rule), f.Text, f.Seed
	}
	return c, nil
}

func (o options) tell(w io.Writer, c catch) {
	if o.json {
		_ = json.NewEncoder(w).Encode(c)
		return
	}
	verdict := "NOT CAUGHT"
	if c.Caught {
		verdict = c.Rule
	}
	text, _, _ := strings.Cut(c.Text, "\n")
	_, _ = fmt.Fprintf(w, "%-28s %5d schedules %6.1f s  %s\n%28s %s\n%28s %s\n", c.Mutant, c.Schedules, c.Seconds, verdict, "", c.About, "", cmp.Or(text, "-"))
}
