// Package mutant puts deliberate faults into the core, to show that a check sees them. A fault is a file: a sentence that
// says what it does, then exact replacements. The sources stay as they are: the compiler is given others in their place.
package mutant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is one deliberate fault of the core: exact replacements in its files.
type Mutant struct {
	Name    string
	About   string // what it does
	changes []change
}

type change struct{ file, old, new string }

// The marks of a mutant's file. What stands before the first one says what it does.
const (
	markFile = "=== "
	markOld  = "--- old\n"
	markNew  = "--- new\n"
)

// Folder is where the mutants are, below the repository.
const Folder = "test/sim/testdata/mutants"

// parse reads the file of a mutant.
func parse(name, text string) (Mutant, error) {
	about, rest, ok := strings.Cut(text, "\n"+markFile)
	m := Mutant{Name: name, About: strings.Join(strings.Fields(about), " ")}
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

// Read returns all mutants of a repository, or those with the given names. One that is not there is an error.
func Read(root string, names ...string) ([]Mutant, error) {
	paths, err := filepath.Glob(filepath.Join(root, Folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []Mutant
	for _, path := range paths {
		b, err := os.ReadFile(path) //nolint:gosec // of the repository
		if err != nil {
			return nil, err
		}
		m, err := parse(strings.TrimSuffix(filepath.Base(path), ".txt"), string(b))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, errors.New("no mutants: run this inside the repository")
	}
	if len(names) == 0 {
		return all, nil
	}
	var chosen []Mutant
	for _, name := range names {
		i := slices.IndexFunc(all, func(m Mutant) bool { return m.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("mutant %q: not found in %s", name, Folder)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// apply returns the changed files by path. A text that is not there exactly once is an error: the core has moved on, and
// the mutant must follow.
func (m Mutant) apply(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, c := range m.changes {
		path := filepath.Join(root, c.file)
		text, changed := files[path]
		if !changed {
			b, err := os.ReadFile(path) //nolint:gosec // of the repository
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, c.old); n != 1 {
			return nil, fmt.Errorf("mutant %s: %s holds the text to replace %d times, want once:\n%s", m.Name, c.file, n, c.old)
		}
		files[path] = strings.Replace(text, c.old, c.new, 1)
	}
	return files, nil
}

// Build compiles a package of the repository with the mutant in it, into dir, and returns the program.
func (m Mutant) Build(ctx context.Context, root, dir, pkg string) (string, error) {
	files, err := m.apply(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for path, text := range files {
		other := filepath.Join(dir, m.Name+"-"+filepath.Base(filepath.Dir(path))+"-"+filepath.Base(path))
		if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = other
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay, program := filepath.Join(dir, m.Name+".json"), filepath.Join(dir, m.Name)
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, pkg) //nolint:gosec // our own
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build mutant %s: %w\n%s", m.Name, err, out)
	}
	return program, nil
}

// Repository returns the root of the repository that this program was started in.
func Repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
