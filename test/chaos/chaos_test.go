package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// history is a record and a stream in letters: a commit each, at LSNs 10, 20, ...
func history(record, stream string) ([]commit, []message) {
	var commits []commit
	for i, id := range strings.Fields(record) {
		commits = append(commits, commit{id: id, end: pglogrepl.LSN(10 * (i + 1))})
	}
	var messages []message
	for i, id := range strings.Fields(stream) {
		messages = append(messages, message{seq: uint64(i + 1), id: id})
	}
	return commits, messages
}

func TestBalanceSeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stream                             string
		lost, doubled, reordered, phantoms int
	}{
		{"a b c d", 0, 0, 0, 0},
		{"a b d", 1, 0, 0, 0},
		{"", 4, 0, 0, 0},
		{"a b a c d", 0, 1, 0, 0},
		{"a c b d", 0, 0, 1, 0},
		{"a b x c d", 0, 0, 0, 1},
		{"d a x x b", 1, 0, 2, 2},
	} {
		r := &result{}
		record, stream := history("a b c d", test.stream)
		r.balance(record, stream, nil)
		if r.Lost != test.lost || r.Doubled != test.doubled || r.Reordered != test.reordered || r.Phantoms != test.phantoms {
			t.Errorf("%q: %+v", test.stream, r)
		}
		if (r.verdict() == nil) != (test.stream == "a b c d") {
			t.Errorf("%q: verdict %v", test.stream, r.verdict())
		}
	}
}

func TestEarlySeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	record, stream := history("a b c d", "a b c")
	for _, test := range []struct {
		confirmed pglogrepl.LSN
		last      uint64
		early     int
	}{
		{0, 0, 0},
		{9, 0, 0},
		{10, 1, 0},
		{10, 0, 1},
		{19, 1, 0},
		{30, 3, 0},
		{30, 2, 1},
		{35, 3, 0},
		{40, 3, 1}, // d is not stored at all
	} {
		r := &result{}
		r.early(record, stream, []sample{{confirmed: test.confirmed, last: test.last}})
		if r.ConfirmedEarly != test.early {
			t.Errorf("%+v: %d", test, r.ConfirmedEarly)
		}
	}
}

// A short run with a fresh seed: `go run ./test/chaos` is the long one.
func TestChaos(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := command(t.Context(), []string{"chaos", "--seconds", "20", "--every", "300ms", "--json", "--logs", t.TempDir()}, &stdout, &stderr)
	t.Logf("\n%s", stderr.String())
	if code != 0 {
		t.Fatalf("exit %d", code)
	}
	var r result
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Committed == 0 || r.Stored != r.Committed || len(r.Faults) == 0 || r.Seed == 0 {
		t.Errorf("%s", stdout.String())
	}
}

// With a deliberate fault in the relay the run must fail, and by the right check.
func TestChaosSeesMutants(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds relays")
	}
	for mutant, test := range map[string]struct{ only, says, more string }{
		"confirm-on-receive": {"leader killed before the publish", "confirmed early", ""},
		"no-tail":            {"leader killed before the confirmation", "doubled", ""},
		"no-fence":           {"publishes arrive when the leader was replaced", "doubled", ""},
		"skip-by-lsn":        {"overtaken by a foreign message", "lost", "--foreign"},
	} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			begun := time.Now()
			args := []string{
				"chaos", "--seconds", "6", "--every", "300ms", "--seed", "1", "--logs", t.TempDir(), "--mutant", mutant, "--only", test.only,
			}
			code := command(t.Context(), append(args, strings.Fields(test.more)...), &stdout, &stderr)
			if code != exitFailed || !regexp.MustCompile(test.says+` [1-9]`).MatchString(stdout.String()) {
				t.Errorf("exit %d after %v\n%s%s", code, time.Since(begun), stdout.String(), stderr.String())
			}
		})
	}
}

func TestChaosUsage(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"--seconds 0": "--seconds", "--only nothing": `--only "nothing"`, "--nope": "nope", "more": `unexpected argument "more"`,
	} {
		var stdout, stderr bytes.Buffer
		code := command(t.Context(), append([]string{"chaos"}, strings.Fields(args)...), &stdout, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), says) {
			t.Errorf("%s: exit %d, %s", args, code, stderr.String())
		}
	}
}

// The same seed means the same faults: names are unique and their order is fixed.
func TestFaultsAreFixed(t *testing.T) {
	t.Parallel()
	var first []string
	for range 3 {
		var names []string
		seen := map[string]bool{}
		for _, f := range faults() {
			if seen[f.name] {
				t.Errorf("%q twice", f.name)
			}
			seen[f.name] = true
			names = append(names, f.name)
		}
		if first == nil {
			first = names
		}
		if fmt.Sprint(names) != fmt.Sprint(first) {
			t.Errorf("%v, then %v", first, names)
		}
	}
}
