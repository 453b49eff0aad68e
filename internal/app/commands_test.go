package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// TestNewcomer walks the way of the manual, and asks for the status at each step.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	stream := strings.ToUpper(sandbox.Name(t))
	env := []string{
		"DATABASE_URL=" + sandbox.Database(t), "NATS_URL=" + sandbox.JetStream(t).URL(), "RELAY_SLOT=" + sandbox.Name(t),
		"RELAY_STREAM=" + stream, "RELAY_SUBJECT=" + strings.ToLower(stream) + ".{topic}",
	}
	reasons := func(verdict string, code int, want ...string) {
		t.Helper()
		got := relay(t, env, "status --json")
		var report struct {
			Verdict string
			Reasons []struct{ Code, Text, Fix string }
		}
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
			t.Fatalf("%v: %+v", err, got)
		}
		var codes []string
		for _, r := range report.Reasons {
			if r.Code != codePendingUnknown { // depends on what other tests have written since the slot was made
				codes = append(codes, r.Code)
			}
		}
		slices.Sort(codes)
		if report.Verdict != verdict || got.code != code || !slices.Equal(codes, want) {
			t.Errorf("verdict %s, exit %d, reasons %v; want %s, %d, %v", report.Verdict, got.code, codes, verdict, code, want)
		}
	}
	step := func(args, want string) {
		t.Helper()
		if got := relay(t, env, args); got.code != exitOK || !strings.Contains(got.stdout, want) || strings.Contains(got.stderr, "relay:") {
			t.Errorf("relay %s: %+v", args, got)
		}
	}
	reasons(verdictBroken, exitVerdict, "publication_missing", "slot_missing", "stream_missing", "table_missing")
	if got := relay(t, env, "slot create"); got.code != exitFailed || !strings.Contains(got.stderr, "try: relay outbox create") {
		t.Errorf("a slot without a table: %+v", got)
	}
	step("outbox create", "created")
	step("outbox create", "exists")
	step("slot create", "created")
	step("slot create", "fit")
	step("stream create", "created")
	step("stream create", "exists and fits")
	step("slot list", "nobody")
	if got := relay(t, env, "stream create --replicas 3 --json"); got.code != exitFailed || !strings.Contains(got.stdout, "replicas: is 1, want 3") {
		t.Errorf("a stream that differs: %+v", got)
	}
	reasons(verdictBroken, exitVerdict, "lag_seconds_unknown", "no_leader")
	if got := relay(t, env, "status"); !regexp.MustCompile(`nobody relays.*BROKEN\n  waiting`).MatchString(got.stdout) {
		t.Errorf("status: %+v", got)
	}
	step("slot drop --drop-publication", "dropped")
	if got := relay(t, env, "slot drop"); got.code != exitFailed || !strings.Contains(got.stderr, "does not exist") {
		t.Errorf("dropping nothing: %+v", got)
	}
}

func TestStatusWithoutServers(t *testing.T) {
	t.Parallel()
	start := time.Now()
	got := relay(t, nowhere, "status --json --max-lag-seconds 1")
	var report map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != exitFailed {
		t.Fatalf("%v: %+v", err, got)
	}
	keys := []string{"lag", "last_failure", "leader", "pending", "reasons", "slot", "stream", "verdict"}
	for _, key := range keys {
		if _, ok := report[key]; !ok {
			t.Errorf("%s is missing in %s", key, got.stdout)
		}
	}
	if len(report) != len(keys) || report["slot"] != nil || report["stream"] != nil || report["verdict"] != verdictBroken {
		t.Errorf("%s", got.stdout)
	}
	for _, code := range []string{codePostgresUnreachable, codeNATSUnreachable} {
		if !strings.Contains(got.stdout, code) {
			t.Errorf("no %s in %s", code, got.stdout)
		}
	}
	if time.Since(start) > 10*time.Second {
		t.Errorf("took %v", time.Since(start))
	}
}

// TestStatusOfALeader runs a relay and asks another process' questions about it.
func TestStatusOfALeader(t *testing.T) {
	t.Parallel()
	stream, database := strings.ToUpper(sandbox.Name(t)), sandbox.Database(t)
	env := []string{
		"DATABASE_URL=" + database, "NATS_URL=" + sandbox.JetStream(t).URL(), "RELAY_SLOT=" + sandbox.Name(t),
		"RELAY_STREAM=" + stream, "RELAY_SUBJECT=" + strings.ToLower(stream) + ".{topic}",
	}
	for _, args := range []string{"outbox create", "slot create", "stream create"} {
		if got := relay(t, env, args); got.code != exitOK {
			t.Fatalf("relay %s: %+v", args, got)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan int, 1)
	var log bytes.Buffer
	go func() { ended <- Run(ctx, []string{"relay", "run"}, &bytes.Buffer{}, &log, env) }()

	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), `INSERT INTO outbox (id, topic, payload) VALUES (gen_random_uuid(), 'order.created', '{}')`); err != nil {
		t.Fatal(err)
	}
	var got result
	var report statusReport
	sandbox.WaitFor(t, 30*time.Second, "a status that is well", func() (bool, error) {
		got, report = relay(t, env, "status --json --max-lag-seconds 5 --max-lag-bytes 1GiB"), statusReport{}
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
			return false, err
		}
		return got.code == exitOK && report.Stream.Messages == 1 && report.Pending.Events != nil, errors.New(got.stdout)
	})
	if report.Verdict != verdictOK || report.Leader == nil || !report.Slot.Active || *report.Lag.Bytes < 0 || *report.Lag.Seconds != 0 ||
		*report.Pending.Events != 0 || report.Stream.LastStoredAt == nil {
		t.Errorf("%s", got.stdout)
	}
	if got := relay(t, env, "status"); !regexp.MustCompile(`leading for .* \(pid \d+ on .*\) +OK\n`).MatchString(got.stdout) {
		t.Errorf("%+v", got)
	}
	if got := relay(t, env, "slot drop"); got.code != exitFailed || !strings.Contains(got.stderr, "in use") {
		t.Errorf("dropping a slot that is held: %+v", got)
	}
	cancel(errors.New("the test is over"))
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d, log:\n%s", code, log.String())
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	got := []string{}
	for _, d := range []time.Duration{
		-time.Second, 0, 400 * time.Millisecond, 42 * time.Second, 2 * time.Minute, 61 * time.Second, 3*time.Hour + 12*time.Minute, 52 * time.Hour,
	} {
		got = append(got, span(d))
	}
	want := []string{"0.0 s", "0.0 s", "0.4 s", "42 s", "2 m", "1 m 1 s", "3 h 12 m", "2 d 4 h"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := count(1204331); got != "1 204 331" {
		t.Errorf("count: %q", got)
	}
}

// TestSignals sends signals to this very process, so it runs alone.
func TestSignals(t *testing.T) {
	forced := make(chan struct{})
	ctx, stop := withSignals(t.Context(), func() { close(forced) })
	defer stop()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if cause, ok := errors.AsType[*signalError](context.Cause(ctx)); !ok || cause.signal != syscall.SIGTERM {
		t.Errorf("cause %v", context.Cause(ctx))
	}
	select {
	case <-forced:
		t.Error("one signal was taken for two")
	default:
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-forced:
	case <-time.After(5 * time.Second):
		t.Error("the second signal was not noticed within 5 s")
	}
}
