package publisher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func TestCreateStream(t *testing.T) {
	t.Parallel()
	srv := startServer(t, &server.Options{JetStream: true})
	nc := dial(t, ConnConfig{URL: srv.ClientURL()})
	opts := StreamOptions{Name: "OUTBOX", SubjectTemplate: "outbox.{topic}"}

	if _, err := InspectStream(t.Context(), nc, "", "OUTBOX"); !errors.Is(err, ErrStreamMissing) {
		t.Fatalf("before there is one: %v", err)
	}
	created, made, diff, err := CreateStream(t.Context(), nc, "", opts)
	if err != nil || !created || len(diff) > 0 {
		t.Fatalf("created %v, diff %v, err %v", created, diff, err)
	}
	want := Stream{
		Name: "OUTBOX", Subjects: []string{"outbox.>"}, Storage: "file", Retention: "limits", Discard: "new", Replicas: 1,
		DuplicateWindow: 2 * time.Minute, MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxMsgsPerSubject: -1,
		AllowBatched: true, AllowDirect: true, APILevel: 5,
	}
	got := made
	got.Created = time.Time{}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the new stream (-want +got):\n%s", d)
	}
	if problems := made.Problems("outbox.{topic}"); len(problems) > 0 {
		t.Errorf("a stream of our own has problems: %v", problems)
	}

	created, again, diff, err := CreateStream(t.Context(), nc, "", opts)
	if err != nil || created || len(diff) > 0 || !again.Created.Equal(made.Created) {
		t.Errorf("the second time: created %v, diff %v, err %v", created, diff, err)
	}
	opts.Replicas, opts.MaxAge, opts.DuplicateWindow, opts.SubjectTemplate = 3, time.Hour, time.Minute, "other.{topic}"
	_, _, diff, err = CreateStream(t.Context(), nc, "", opts)
	wantDiff := []string{
		"subjects: is outbox.>, want other.>", "replicas: is 1, want 3", "max age: is none, want 1h0m0s",
		"duplicate window: is 2m0s, want 1m0s",
	}
	if d := cmp.Diff(wantDiff, diff); err != nil || d != "" {
		t.Errorf("another wish (err %v, -want +got):\n%s", err, d)
	}

	if _, err := nc.Request("outbox.order.created", []byte("{}"), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	after, err := InspectStream(t.Context(), nc, "", "OUTBOX")
	if err != nil || after.LastSeq != 1 || after.FirstSeq != 1 || after.Messages != 1 || after.LastTime.IsZero() || after.Bytes == 0 {
		t.Errorf("after one message: %+v, %v", after, err)
	}
}

func TestCreateStreamShortAge(t *testing.T) {
	t.Parallel()
	srv := startServer(t, &server.Options{JetStream: true})
	nc := dial(t, ConnConfig{URL: srv.ClientURL()})
	opts := StreamOptions{Name: "SHORT", SubjectTemplate: "a.b.{topic}", MaxAge: time.Minute}
	created, s, _, err := CreateStream(t.Context(), nc, "", opts)
	if err != nil || !created || s.DuplicateWindow != time.Minute || s.MaxAge != time.Minute {
		t.Fatalf("created %v, %+v, %v", created, s, err)
	}
	if _, _, diff, err := CreateStream(t.Context(), nc, "", opts); err != nil || len(diff) > 0 {
		t.Errorf("the second time: %v, %v", diff, err)
	}
}

func TestStreamSubjects(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"outbox.{topic}": "outbox.>", "outbox.": "outbox.>", "a.b.{topic}.x": "a.b.>", "a.b-{topic}": "a.>", "events.all": "events.all",
		"{topic}": "", "x-{topic}": "", "": "", ".{topic}": "",
	} {
		got, err := StreamOptions{SubjectTemplate: template}.Subjects()
		if (want == "") != errors.Is(err, ErrSubjectPrefix) {
			t.Errorf("%q: %v", template, err)
		}
		if want != "" && (len(got) != 1 || got[0] != want) {
			t.Errorf("%q: got %v, want %s", template, got, want)
		}
	}
}

func TestSubjectCoverage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		filter, pattern string
		covers, touches bool
	}{
		{"outbox.>", "outbox.>", true, true},
		{">", "outbox.>", true, true},
		{"*.>", "outbox.>", true, true},
		{"outbox.*", "outbox.>", false, true},
		{"outbox.order.>", "outbox.>", false, true},
		{"outbox", "outbox.>", false, false},
		{"other.>", "outbox.>", false, false},
		{"events.*", "events.all", true, true},
		{"events.all", "events.all", true, true},
		{"events", "events.all", false, false},
	} {
		if got := covered([]string{"zzz", c.filter}, c.pattern); got != c.covers {
			t.Errorf("covered(%s, %s) = %v", c.filter, c.pattern, got)
		}
		if got := touched([]string{"zzz", c.filter}, c.pattern); got != c.touches {
			t.Errorf("touched(%s, %s) = %v", c.filter, c.pattern, got)
		}
	}
}

func TestStreamProblems(t *testing.T) {
	t.Parallel()
	srv := startServer(t, &server.Options{JetStream: true})
	nc := dial(t, ConnConfig{URL: srv.ClientURL()})
	for i, c := range []struct{ config, code, severity string }{
		{`"subjects":["p0.>"],"no_ack":true`, "stream_no_ack", Broken},
		{`"subjects":["p1.>"],"storage":"memory"`, "stream_memory", Warning},
		{`"subjects":["p2.>"],"retention":"workqueue"`, "stream_retention", Warning},
		{`"subjects":["p3.>"],"retention":"interest"`, "stream_retention", Warning},
		{`"subjects":["p4.>"],"max_msgs":10,"discard":"old"`, "stream_discard_old", Warning},
		{`"subjects":["p5.>"],"duplicate_window":1000000000`, "stream_duplicate_window", Warning},
		{`"subjects":["p6.>"],"subject_transform":{"src":"p6.>","dest":"q6.>"}`, "stream_subject_transform", Warning},
		{`"subjects":["p7.>"],"sources":[{"name":"P0"}]`, "stream_sources", Warning},
		{`"mirror":{"name":"P0"}`, "stream_mirror", Broken},
		{`"subjects":["elsewhere.>"]`, "stream_subjects", Broken},
		{`"subjects":["p10.*"]`, "stream_subjects_partial", Warning},
		{`"subjects":["p11.>"],"persist_mode":"async"`, "stream_persist_async", Broken},
		{`"subjects":["p12.>"],"allow_msg_ttl":true`, "stream_msg_ttl", Warning},
		{`"subjects":["p13.>"],"allow_msg_counter":true,"discard":"old"`, "stream_counter", Broken},
		{`"subjects":["p14.>"],"allow_batched":false`, "stream_not_batched", Warning},
		{`"subjects":["p15.>"],"sealed":true`, "stream_sealed", Broken},
	} {
		name := fmt.Sprintf("P%d", i)
		config := fmt.Sprintf(`{"name":%q,%s,"num_replicas":1`, name, c.config)
		for key, value := range map[string]string{
			"storage": `"file"`, "discard": `"new"`, "retention": `"limits"`, "max_msgs": "-1", "max_bytes": "-1",
			"duplicate_window": "120000000000", "allow_batched": "true",
		} {
			mirror := strings.Contains(c.config, `"mirror"`) && (key == "duplicate_window" || key == "allow_batched")
			if !strings.Contains(c.config, `"`+key+`"`) && !mirror {
				config += fmt.Sprintf(`,%q:%s`, key, value)
			}
		}
		makeStream(t, nc, name, config+"}")
		s, err := InspectStream(t.Context(), nc, "", name)
		if err != nil {
			t.Fatal(err)
		}
		var found bool
		for _, p := range s.Problems(fmt.Sprintf("p%d.{topic}", i)) {
			found = found || (p.Code == c.code && p.Severity == c.severity && strings.Contains(p.Text, name))
		}
		if !found {
			t.Errorf("%s: no %s among %+v", c.config, c.code, s.Problems(fmt.Sprintf("p%d.{topic}", i)))
		}
	}
}

// makeStream asks for a stream in the server's own words; a sealed one is made in two steps.
func makeStream(t *testing.T, nc *nats.Conn, name, config string) {
	t.Helper()
	steps := []string{"CREATE", config}
	if strings.Contains(config, `"sealed":true`) {
		steps = []string{"CREATE", strings.Replace(config, `"sealed":true,`, "", 1), "UPDATE", config}
	}
	for i := 0; i < len(steps); i += 2 {
		answer, err := nc.Request("$JS.API.STREAM."+steps[i]+"."+name, []byte(steps[i+1]), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(answer.Data), `"error"`) {
			t.Fatalf("%s: %s", config, answer.Data)
		}
	}
}

func TestInspectStreamErrors(t *testing.T) {
	t.Parallel()
	off := dial(t, ConnConfig{URL: startServer(t, &server.Options{}).ClientURL()})
	if _, err := InspectStream(t.Context(), off, "", "OUTBOX"); !errors.Is(err, ErrNoJetStream) {
		t.Errorf("JetStream off: %v", err)
	}
	on := startServer(t, &server.Options{JetStream: true, JetStreamDomain: "hub", Users: []*server.User{
		{Username: "all", Password: "p"},
		{Username: "mute", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"outbox.>"}}}},
	}})
	all := dial(t, ConnConfig{URL: on.ClientURL(), User: "all", Password: "p"})
	if _, err := InspectStream(t.Context(), all, "other", "OUTBOX"); !errors.Is(err, ErrNoJetStream) {
		t.Errorf("an unknown domain: %v", err)
	}
	if created, _, _, err := CreateStream(t.Context(), all, "hub", StreamOptions{Name: "OUTBOX", SubjectTemplate: "outbox.{topic}"}); err != nil || !created {
		t.Errorf("create in a domain: %v", err)
	}
	mute := dial(t, ConnConfig{URL: on.ClientURL(), User: "mute", Password: "p"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := InspectStream(ctx, mute, "", "OUTBOX"); !errors.Is(err, ErrNoPermission) {
		t.Errorf("no permission: %v", err)
	}
}

// A cluster between two leaders drops a question: another one is answered. One that changes something is not asked twice.
func TestAskAgain(t *testing.T) {
	t.Parallel()
	bare := dial(t, ConnConfig{URL: startServer(t, &server.Options{}).ClientURL()})
	asked := map[string]int{}
	_, err := bare.Subscribe("$JS.API.>", func(m *nats.Msg) {
		if asked[m.Subject]++; asked[m.Subject] == 2 {
			_ = m.Respond([]byte(`{"config":{"name":"OUTBOX"},"state":{"last_seq":7}}`))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := InspectStream(t.Context(), bare, "", "OUTBOX")
	if err != nil || stream.LastSeq != 7 {
		t.Errorf("%+v, %v", stream, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*firstTry)
	defer cancel()
	if err := apiRequest(ctx, bare, "", "STREAM.CREATE.OUTBOX", nil, &struct{}{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("create: %v", err)
	}
}

// A refusal of something else, earlier, is not taken for one of this question.
func TestOldRefusal(t *testing.T) {
	t.Parallel()
	s := startServer(t, &server.Options{Users: []*server.User{
		{Username: "u", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"secret"}}}},
	}})
	nc := dial(t, ConnConfig{URL: s.ClientURL(), User: "u", Password: "p"})
	if err := errors.Join(nc.Publish("secret", nil), nc.Flush()); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Subscribe("$JS.API.>", func(*nats.Msg) {}); err != nil { // never answers
		t.Fatal(err)
	}
	for !errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
		if err := nc.FlushWithContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := InspectStream(ctx, nc, "", "OUTBOX"); errors.Is(err, ErrNoPermission) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
