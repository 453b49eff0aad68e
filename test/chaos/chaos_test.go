package main

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	code := command(t.Context(), []string{"chaos", "--seconds", "8", "--every", "300ms", "--json", "--logs", t.TempDir()}, &stdout, &stderr)
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
	for _, s := range scripts() {
		t.Run(s.mutant, func(t *testing.T) {
			t.Parallel()
			var story bytes.Buffer
			r, err := wreak(t.Context(), s.options(1, t.TempDir()), &story)
			switch {
			case err != nil:
				t.Errorf("%v\n%s", err, story.String())
			case s.count(r) == 0 || r.verdict() == nil:
				t.Errorf("not %s: %v\n%s", s.check, r.verdict(), story.String())
			}
		})
	}
}

// What is found is told with the faults about that moment.
func TestVerdictNamesTheFaultsAround(t *testing.T) {
	t.Parallel()
	r := &result{began: seconds(0), struck: []struck{
		{"long over", seconds(1), seconds(2)}, {"just over", seconds(8), seconds(9)}, {"under way", seconds(9), seconds(30)}, {"yet to come", seconds(20), seconds(21)},
	}}
	r.find(&r.Lost, seconds(10), "lost: %s", "a")
	got := r.verdict().Error()
	if want := "lost: a\n    at 10.0 s, around: just over (8.0-9.0 s), under way (9.0-30.0 s)\n"; !strings.Contains(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestChaosUsage(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"--seconds 0": "--seconds", "--mutant no-tail --relay x": "exclude each other", "--only nothing": `--only "nothing"`, "--nope": "nope", "more": `unexpected argument "more"`,
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

// Findings of one kind leave room for others, and what is only counted hides none.
func TestEachKindIsTold(t *testing.T) {
	t.Parallel()
	r := &result{Reordered: 3 * shown}
	for range 2 * shown {
		r.find(&r.Lost, time.Time{}, "lost")
		r.find(&r.Reordered, time.Time{}, "reordered")
	}
	if len(r.wrong) != 2*shown || r.Lost != 2*shown || r.Reordered != 5*shown {
		t.Errorf("%d findings: %+v", len(r.wrong), r)
	}
}
