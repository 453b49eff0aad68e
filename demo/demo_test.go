package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

func TestDemo(t *testing.T) {
	for _, events := range []string{"1", "400"} {
		t.Run(events, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			if code := command(t.Context(), []string{"demo", "--json", "--events", events}, &stdout, &stderr); code != exitOK {
				t.Fatalf("exit %d\n%s", code, stderr.String())
			}
			var got map[string]float64
			lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
				t.Fatalf("the last line of stdout: %v\n%s", err, stdout.String())
			}
			var n float64
			if err := json.Unmarshal([]byte(events), &n); err != nil {
				t.Fatal(err)
			}
			want := map[string]float64{
				"committed": n, "stored": n, "effects": n, "lost": 0, "doubled": 0, "reordered": 0,
			}
			for key, value := range want {
				if g, ok := got[key]; !ok || g != value {
					t.Errorf("%s is %v, want %v", key, g, value)
				}
			}
			if len(got) != len(want)+2 || got["seconds"] <= 0 || got["delivered"] <= n { // what the killed service had came again
				t.Errorf("%v: want more deliveries than events, seconds, and nothing else", got)
			}
			for _, text := range []string{
				"relay 1 was killed (SIGKILL), between JetStream's ack and the confirmation", "stored, not yet confirmed",
				"relay 2 holds the slot", "were in the stream already", "the shipping service was killed", "Nothing lost, nothing doubled, nothing reordered",
			} {
				if !strings.Contains(stderr.String(), text) {
					t.Errorf("the story does not say %q\n%s", text, stderr.String())
				}
			}
		})
	}
}

// Each step is reached, and whatever is left there the next relay makes good.
func TestDemoCrash(t *testing.T) {
	t.Parallel()
	for _, s := range steps() {
		if s.name == defaultStep {
			continue // TestDemo
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			if code := command(t.Context(), []string{"demo", "--events", "60", "--crash", s.name}, &stdout, &stderr); code != exitOK {
				t.Fatalf("exit %d\n%s%s", code, stdout.String(), stderr.String())
			}
			for _, text := range []string{"was killed (SIGKILL), " + s.title, s.left, "Nothing lost, nothing doubled, nothing reordered"} {
				if !strings.Contains(stdout.String(), text) {
					t.Errorf("the story does not say %q\n%s", text, stdout.String())
				}
			}
		})
	}
}

// What --keep prints must be what a person can use; an interrupt then ends it in good order.
func TestDemoKeep(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	stdout := &watched{text: "go run . run", seen: interrupt}
	var stderr bytes.Buffer
	if code := command(ctx, []string{"demo", "--events", "10", "--keep"}, stdout, &stderr); code != exitOK {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr.String())
	}
	for _, text := range []string{"Nothing lost", "PostgreSQL  postgres://", "NATS        nats://", "go run . status"} {
		if !strings.Contains(stdout.String(), text) {
			t.Errorf("no %q in\n%s", text, stdout)
		}
	}
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	stdout := &watched{text: "relay 1 holds the slot", seen: interrupt}
	var stderr bytes.Buffer
	if code := command(ctx, []string{"demo", "--events", "100000"}, stdout, &stderr); code != exitInterrupted {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr.String())
	}
	if !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("stderr: %s", stderr.String())
	}
}

// watched is a writer that tells when a text has passed.
type watched struct {
	text string
	seen func()

	mu  sync.Mutex
	all strings.Builder
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Write(p)
	if strings.Contains(w.all.String(), w.text) {
		w.seen()
	}
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

func TestDemoUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ args, says string }{
		{"--events 0", "--events 0"},
		{"--events 1000001", "--events 1000001"},
		{"--events many", "many"},
		{"--nope", "nope"},
		{"--crash nowhere", "received, transaction, published, acked, confirmed, resuming, draining"},
		{"--crash transaction --events 3", "--events 3"},
		{"now", `unexpected argument "now"`},
	} {
		var stdout, stderr bytes.Buffer
		code := command(t.Context(), append([]string{"demo"}, strings.Fields(tt.args)...), &stdout, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), tt.says) || strings.Count(stderr.String(), "\n") != 2 {
			t.Errorf("%s: exit %d, stderr %q", tt.args, code, stderr.String())
		}
	}
}

// A balance that could not see a fault would be worth nothing.
func TestCompare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		got  string
		want difference
	}{
		{"a b c d", difference{}},
		{"a b d", difference{lost: 1}},
		{"", difference{lost: 4}},
		{"a b b c d", difference{doubled: 1}},
		{"a b c d a", difference{doubled: 1}},
		{"a c b d", difference{reordered: 1}},
		{"b c d a", difference{reordered: 1}},
		{"d c b a", difference{reordered: 3}},
		{"a b c x d", difference{phantoms: 1}},
		{"x x c b b", difference{lost: 2, doubled: 1, reordered: 1, phantoms: 2}},
	} {
		if got := compare(strings.Fields("a b c d"), strings.Fields(tt.got)); got != tt.want {
			t.Errorf("%q: %+v, want %+v", tt.got, got, tt.want)
		}
	}
}

func TestBalanceSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	right := balance{Committed: 4, Stored: 4, Effects: 4, sold: 10, shipped: 10}
	if wrong := right.wrong(); wrong != "" {
		t.Errorf("%q", wrong)
	}
	for _, spoil := range []func(*balance){
		func(b *balance) { b.Lost = 1 }, func(b *balance) { b.Doubled = 1 }, func(b *balance) { b.Reordered = 1 },
		func(b *balance) { b.phantoms = 1 }, func(b *balance) { b.Effects-- }, func(b *balance) { b.Effects++ },
		func(b *balance) { b.shipments.doubled = 1 }, func(b *balance) { b.shipped++ }, func(b *balance) { b.dead = 1 },
	} {
		b := right
		spoil(&b)
		if b.wrong() == "" {
			t.Errorf("%+v passes", b)
		}
	}
}
