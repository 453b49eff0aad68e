package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mutant is one deliberate fault of the core: exact replacements in its files.
type mutant struct {
	name    string
	about   string
	changes []change
}

type change struct{ file, old, new string }

// The marks of a mutant's file. What stands before the first one says what it does.
const (
	markFile = "=== "
	markOld  = "--- old\n"
	markNew  = "--- new\n"
)

// parseMutant reads a file of testdata/mutants.
func parseMutant(name, text string) (mutant, error) {
	about, rest, ok := strings.Cut(text, "\n"+markFile)
	m := mutant{name: name, about: strings.Join(strings.Fields(about), " ")}
	for ok {
		var section string
		section, rest, ok = strings.Cut(rest, "\n"+markFile)
		file, body, _ := strings.Cut(section, "\n")
		before, after, found := strings.Cut(strings.TrimPrefix(body, markOld), markNew)
		if !found || !strings.HasPrefix(body, markOld) {
			return m, fmt.Errorf("mutant %s: %s: want %q and %q", name, file, markOld, markNew)
		}
		m.changes = append(m.changes, change{file: file, old: strings.TrimSuffix(before, "\n"), new: strings.TrimSuffix(after, "\n")})
	}
	if len(m.changes) == 0 {
		return m, fmt.Errorf("mutant %s changes nothing", name)
	}
	return m, nil
}

func readMutants(root string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(root, "test/sim/testdata/mutants/*.txt"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, path := range paths {
		b, err := os.ReadFile(path) //nolint:gosec // of the repository
		if err != nil {
			return nil, err
		}
		m, err := parseMutant(strings.TrimSuffix(filepath.Base(path), ".txt"), string(b))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, errors.New("no mutants: run this inside the repository")
	}
	return all, nil
}

// apply returns the changed files by path. A text that is not there exactly once is an error: the core has moved on, and
// the mutant must follow.
func (m mutant) apply(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, c := range m.changes {
		path := filepath.Join(root, c.file)
		text, changed := files[path]
		if !changed {
			b, err := os.ReadFile(path) //nolint:gosec // of the repository
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.name, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, c.old); n != 1 {
			return nil, fmt.Errorf("mutant %s: %s holds the text to replace %d times, want once:\n%s", m.name, c.file, n, c.old)
		}
		files[path] = strings.Replace(text, c.old, c.new, 1)
	}
	return files, nil
}

// build compiles this program with the mutant in it.
func (m mutant) build(ctx context.Context, root, dir string) (string, error) {
	files, err := m.apply(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for path, text := range files {
		other := filepath.Join(dir, m.name+"-"+filepath.Base(filepath.Dir(path))+"-"+filepath.Base(path))
		if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = other
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay, program := filepath.Join(dir, m.name+".json"), filepath.Join(dir, m.name)
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "./test/sim") //nolint:gosec // our own
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build mutant %s: %w\n%s", m.name, err, out)
	}
	return program, nil
}

func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

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
	root, err := repository(ctx)
	if err != nil {
		return false, err
	}
	mutants, err := readMutants(root)
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
		if o.only != "" && o.only != m.name {
			continue
		}
		c, err := o.try(ctx, m, root, dir)
		if err != nil {
			return false, err
		}
		all = all && c.Caught
		o.tell(w, c)
	}
	return all, ctx.Err()
}

func (o options) try(ctx context.Context, m mutant, root, dir string) (catch, error) {
	c := catch{Mutant: m.name, About: m.about}
	program, err := m.build(ctx, root, dir)
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
