package checkpoint

import (
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestI3_Transcripts plays transcripts into a window that starts at LSN 100. A step is a call and its argument; what
// stands in brackets is Low after it.
func TestI3_Transcripts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, transcript string }{
		{"a stored transaction is confirmed by its end", "begin[100] event[100] commit:200[100] stored:1[200]"},
		{"stored before the commit arrives", "begin event stored:1[100] event stored:2[100] commit:200[200]"},
		{"an open transaction is not confirmed", "begin event event event stored:3[100]"},
		{"part of a transaction is not confirmed", "begin event event commit:200 stored:1[100] stored:2[200]"},
		{"several transactions at once", "begin event commit:200 begin event commit:300 begin event commit:400[100] stored:2[300] stored:3[400]"},
		{"up to the open transaction", "begin event commit:200 begin event event[100] stored:2[200] stored:3[200] commit:300[300]"},

		{"a keepalive moves the mark at rest", "keepalive:150[150] keepalive:170[170]"},
		{"a keepalive while an event waits", "begin event commit:200 keepalive:250[100] stored:1[200] keepalive:250[250]"},
		{"a keepalive inside a transaction", "begin keepalive:150[100] event keepalive:160[100] stored:1 keepalive:170[100] commit:200[200]"},
		{"a keepalive inside an empty transaction", "begin keepalive:900[100] commit:200[200] keepalive:900[900]"},
		{"a keepalive between two transactions that wait", "begin event commit:200 keepalive:300 begin event commit:400 stored:1[200] stored:2[400]"},
		{"a keepalive below the confirmed LSN", "keepalive:50[100] keepalive:0[100] keepalive:101[101] keepalive:100[101]"},
		{"a keepalive below the last transaction", "begin event commit:300 stored:1[300] keepalive:250[300]"},

		{"an empty transaction at rest", "begin commit:200[200] begin commit:300[300]"},
		{"an empty transaction behind one that waits", "begin event commit:200 begin commit:300[100] stored:1[300]"},
		{"the last of many empty ones counts", "begin event commit:200 begin commit:300 begin commit:400[100] stored:1[400]"},
		{"an empty one behind a part", "begin event event commit:200 stored:1 begin commit:300[100] stored:2[300]"},
		{"an empty one between two that wait", "begin event commit:200 begin commit:300 begin event commit:400 stored:1[300] stored:2[400]"},
		{"an empty one that is still open", "begin event commit:200 begin stored:1[200] commit:300[300]"},
		{"an empty one that ends lower", "begin event commit:300 begin commit:200 stored:1[300]"},

		{"raised to what became known", "raise:150[150] raise:120[150] begin event commit:200 raise:160[160] stored:1[200]"},
		{"what comes back after a crash", "begin event commit:50 stored:1[100] begin event commit:90 begin event commit:110 stored:3[110]"},
		{"stored again", "begin event commit:200 stored:0[100] stored:1[200] stored:1[200]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := New(100)
			for step := range strings.FieldsSeq(test.transcript) {
				call, bracket, checked := strings.Cut(step, "[")
				play(t, w, call)
				if want := number(t, strings.TrimSuffix(bracket, "]")); checked && w.Low() != pglogrepl.LSN(want) {
					t.Fatalf("Low is %d after %q of %q", uint64(w.Low()), step, test.transcript)
				}
			}
		})
	}
}

// TestWindow_State follows what Open and Settled say.
func TestWindow_State(t *testing.T) {
	t.Parallel()
	w := New(100)
	for _, step := range []struct {
		call          string
		open, settled bool
	}{
		{"keepalive:150", false, true},
		{"begin", true, true},
		{"event", true, false},
		{"stored:1", true, true},
		{"event", true, false},
		{"commit:200", false, false},
		{"keepalive:300", false, false},
		{"stored:2", false, true},
	} {
		play(t, w, step.call)
		if w.Open() != step.open || w.Settled() != step.settled {
			t.Errorf("after %q: open %v, settled %v", step.call, w.Open(), w.Settled())
		}
	}
}

// TestI1_Misuse ends in a panic that names the invariant: going on would confirm what is not stored.
func TestI1_Misuse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, transcript, last string }{
		{"a transaction inside another", "begin event", "begin"},
		{"an event before all transactions", "", "event"},
		{"an event after a transaction", "begin event commit:200", "event"},
		{"a commit before all transactions", "", "commit:200"},
		{"a second commit", "begin commit:200", "commit:300"},
		{"more stored than read", "begin event", "stored:2"},
		{"stored with nothing read", "", "stored:1"},
		{"fewer stored than before", "begin event event commit:200 stored:2", "stored:1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := New(100)
			for step := range strings.FieldsSeq(test.transcript) {
				play(t, w, step)
			}
			before := w.Low()
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "I1: ") {
					t.Errorf("%q after %q: panic %q", test.last, test.transcript, text)
				}
				if w.Low() != before {
					t.Errorf("Low went from %s to %s", before, w.Low())
				}
			}()
			play(t, w, test.last)
		})
	}
}

// TestWindow_Bounded reads a million transactions that stay ten ahead of what is stored: the marks are bounded by those
// that wait.
func TestWindow_Bounded(t *testing.T) {
	t.Parallel()
	w := New(0)
	const ahead = 10
	for i := uint64(1); i <= 1_000_000; i++ {
		w.Begin()
		w.Event()
		w.Commit(pglogrepl.LSN(i * 8))
		if i > ahead {
			w.Stored(i - ahead)
			if w.Low() != pglogrepl.LSN((i-ahead)*8) {
				t.Fatalf("Low is %d with %d stored", uint64(w.Low()), i-ahead)
			}
		}
	}
	if cap(w.marks) > 8*ahead {
		t.Errorf("room for %d marks with %d transactions waiting", cap(w.marks), ahead)
	}
}

func play(t *testing.T, w *Window, step string) {
	t.Helper()
	call, argument, _ := strings.Cut(step, ":")
	n := number(t, argument)
	switch call {
	case "begin":
		w.Begin()
	case "event":
		w.Event()
	case "commit":
		w.Commit(pglogrepl.LSN(n))
	case "keepalive":
		w.Keepalive(pglogrepl.LSN(n))
	case "raise":
		w.Raise(pglogrepl.LSN(n))
	case "stored":
		w.Stored(n)
	default:
		t.Fatalf("no call %q", call)
	}
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
