package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// What goes out is shown, one line an event, and a message of somebody else is called so.
func TestTail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := w.must("tail --no-follow"); got.stdout != "" {
		t.Errorf("an empty stream: %+v", got)
	}
	follower := w.start("tail", "--json")
	relaying, _ := w.startRelay()
	w.insert(15)
	follower.waitFor(t, follower.out, `"sequence":15`)
	nc, err := nats.Connect(sandbox.JetStream(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), strings.ToLower(w.stream)+".other", []byte("x")); err != nil {
		t.Fatal(err)
	}
	follower.waitFor(t, follower.out, `"sequence":16`)
	if code := follower.stop(); code != exitOK {
		t.Errorf("exit %d: %s", code, follower.log)
	}
	if code := relaying.stop(); code != exitOK {
		t.Errorf("exit %d: %s", code, relaying.log)
	}

	got := w.must("tail --no-follow")
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if len(lines) != tailLast || !strings.Contains(lines[0], " 7 ") || !strings.Contains(lines[9], "foreign: no relay") {
		t.Errorf("the last ten:\n%s", got.stdout)
	}
	var first tailEvent
	line, _, _ := strings.Cut(w.must("tail --since=1 --limit=2 --json").stdout, "\n")
	if err := json.Unmarshal([]byte(line), &first); err != nil {
		t.Fatal(err)
	}
	if first.Sequence != 1 || first.ID == nil || first.Position == nil || !strings.HasPrefix(*first.Position, w.slot+"@") ||
		first.AgeSeconds == nil || *first.AgeSeconds < 0 || first.Bytes != len("{}") || first.Foreign {
		t.Errorf("%s", line)
	}
	for args, count := range map[string]int{
		"--since=1h --no-follow": 16, "--since=1ns --no-follow": 0, "--since=14 --no-follow": 3, "--since=99 --no-follow": 0, "--since=3 --limit=4": 4,
		"--limit=12 --no-follow": 12, "--limit=2": 2,
	} {
		if got := w.must("tail " + args); strings.Count(got.stdout, "\n") != count {
			t.Errorf("%s: want %d lines:\n%s", args, count, got.stdout)
		}
	}
	if got := relay(t, append(w.env, "RELAY_SLOT=another"), "tail --no-follow --since=1 --limit=1"); !strings.Contains(got.stdout, "foreign: of slot "+w.slot) {
		t.Errorf("of another slot: %+v", got)
	}
	for args, code := range map[string]int{
		"--since=yesterday": exitUsage, "--since=0": exitUsage, "--since=-1h": exitUsage, "--limit=0": exitUsage, "--stream=NOTHING": exitFailed,
	} {
		if got := relay(t, w.env, "tail "+args); got.code != code || got.stdout != "" {
			t.Errorf("%s: %+v", args, got)
		}
	}
	stream, err := js.Stream(t.Context(), w.stream)
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Consumers; n > 0 {
		t.Errorf("%d consumers are left behind", n)
	}
}

// A work queue allows no second consumer: tail reads it by single requests, and takes nothing out.
func TestTailOfAWorkQueue(t *testing.T) {
	t.Parallel()
	nc, err := nats.Connect(sandbox.JetStream(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ToUpper(sandbox.Name(t))
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(t.Context(), name, jetstream.ConsumerConfig{Durable: "the_one", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, stream: name, env: []string{"NATS_URL=" + sandbox.JetStream(t).URL(), "RELAY_STREAM=" + name}}
	follower := w.start("tail")
	for _, topic := range []string{"one", "two"} {
		if _, err := js.Publish(t.Context(), name+"."+topic, nil); err != nil {
			t.Fatal(err)
		}
		follower.waitFor(t, follower.out, name+"."+topic)
	}
	if code := follower.stop(); code != exitOK {
		t.Errorf("exit %d: %s", code, follower.log)
	}
	if got := w.must("tail --no-follow"); strings.Count(got.stdout, "\n") != 2 {
		t.Errorf("%+v", got)
	}
	info, err := stream.Info(t.Context())
	if err != nil || info.State.Msgs != 2 || info.State.Consumers != 1 {
		t.Errorf("%v: %d messages and %d consumers", err, info.State.Msgs, info.State.Consumers)
	}
}
