package app

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Bash itself says what it would offer behind a line.
func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here")
	}
	script := filepath.Join(t.TempDir(), "relay.bash")
	if err := os.WriteFile(script, []byte(relay(t, nil, "completion bash").stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	const ask = `. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _relay; printf '%s\n' "${COMPREPLY[@]}"`
	for _, test := range []struct {
		line         []string // its last word is the one to be completed
		wants, lacks []string
	}{
		{[]string{"relay", ""}, []string{"run", "status", "doctor", "tail", "slot", "completion", "--help"}, []string{"create"}},
		{[]string{"relay", "s"}, []string{"status", "slot", "stream"}, []string{"run"}},
		{[]string{"relay", "slot", ""}, []string{"create", "list", "drop"}, []string{"run"}},
		{[]string{"relay", "run", "--win"}, []string{"--window", "--window-bytes"}, []string{"--slot"}},
		{[]string{"relay", "run", "--window", "5", "--re"}, []string{"--retention"}, []string{"--window"}},
		{[]string{"relay", "--slot", "status", "slot", "c"}, []string{"create"}, []string{"list"}},
		{[]string{"relay", "--slot", "=", "x", "slot", "c"}, []string{"create"}, []string{"list"}},
		{[]string{"relay", "status", "--json", "--max"}, []string{"--max-lag-seconds", "--max-lag-bytes"}, nil},
		{[]string{"relay", "run", "--log-level", ""}, []string{"debug", "info", "warn", "error"}, []string{"--slot"}},
		{[]string{"relay", "run", "--log-level", "=", "w"}, []string{"warn"}, []string{"info"}},
		{[]string{"relay", "run", "--nats-creds", ""}, nil, []string{"--slot", "run"}}, // bash offers files
		{[]string{"relay", "outbox", "ddl", "--nats"}, nil, []string{"--nats-url"}},    // accepted, not shown
		{[]string{"relay", "nonsense", ""}, nil, []string{"run", "--help"}},
	} {
		out, err := exec.CommandContext(t.Context(), bash, slices.Concat([]string{"-c", ask, "bash", script}, test.line)...).CombinedOutput() //nolint:gosec // the test's own words
		if err != nil {
			t.Fatalf("%q: %v\n%s", test.line, err, out)
		}
		got := strings.Fields(string(out))
		for _, want := range test.wants {
			if !slices.Contains(got, want) {
				t.Errorf("%q lacks %s: %q", test.line, want, got)
			}
		}
		for _, lack := range test.lacks {
			if slices.Contains(got, lack) {
				t.Errorf("%q has %s: %q", test.line, lack, got)
			}
		}
	}
}

// Every script names every command and flag, and its shell can read it where there is one.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	root := (&app{shared: newSharedSettings()}).tree()
	for shell, flag := range map[string]string{"bash": "--", "zsh": "--", "fish": "-l "} {
		got := relay(t, nil, "completion "+shell)
		if got.code != exitOK || got.stderr != "" {
			t.Fatalf("%s: %+v", shell, got)
		}
		for _, p := range places(root, nil) {
			for _, c := range p.words {
				if !strings.Contains(got.stdout, c.Name) {
					t.Errorf("%s lacks the command %s", shell, c.Name)
				}
			}
			for _, f := range p.flags {
				if !strings.Contains(got.stdout, flag+f.name) {
					t.Errorf("%s lacks the flag %s", shell, f.name)
				}
			}
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		check := exec.CommandContext(t.Context(), path, "-n") //nolint:gosec // one of three
		check.Stdin = bytes.NewBufferString(got.stdout)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
	if got := relay(t, nil, "completion tcsh"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
	if got := relay(t, nil, "completion"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}
