package main

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGuard fails when the relay has become much dearer than it was. Only ratios inside one run and the relay's own counts are
// looked at, so a slow or busy machine does not matter; the bounds are far from the goals, which a quiet machine is for.
//
// Relay and bench are built anew: the race detector of this test would be most of what is measured.
func TestGuard(t *testing.T) {
	dir := t.TempDir()
	bench, relay := filepath.Join(dir, "bench"), filepath.Join(dir, "relay")
	run(t, "go", "build", "-o", bench, ".")
	run(t, "go", "build", "-o", relay, "../..")
	out := run(t, bench, "--quick", "--json", "--events", "50000", "--steady", "1s", "--idle", "1s", "--relay", relay)
	// A figure that was not measured is null, and stays below zero here.
	f := struct {
		Share  float64 `json:"relay_cpu_share"`
		Allocs float64 `json:"allocs_per_event"`
		RSS    float64 `json:"rss_peak_mib"`
	}{-1, -1, -1}
	if err := json.Unmarshal(out, &f); err != nil {
		t.Fatal(err)
	}
	for _, figure := range []struct {
		name       string
		got, limit float64
	}{
		{"relay_cpu_share", f.Share, 0.45},
		{"allocs_per_event", f.Allocs, 10},
		{"rss_peak_mib", f.RSS, 64},
	} {
		t.Logf("%s %.2f", figure.name, figure.got)
		if figure.got <= 0 || figure.got > figure.limit {
			t.Errorf("%s %.2f, want more than 0 and at most %.2f", figure.name, figure.got, figure.limit)
		}
	}
}

// run returns what a program prints, and fails the test if it cannot.
func run(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).Output()
	if err != nil {
		var text []byte
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			text = exit.Stderr
		}
		t.Fatalf("%s %v: %v\n%s", program, args, err, text)
	}
	return out
}
