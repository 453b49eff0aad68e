package compose_test

import (
	"context"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

const (
	setUpLimit   = 30 * time.Second // of one set-up command
	deliverLimit = 30 * time.Second // from the commit to the message
)

// start runs a service's command line with its environment, except that the servers are those of the sandbox.
func start(t *testing.T, binary string, s types.ServiceConfig, database, natsURL string) *sandbox.Process {
	t.Helper()
	var env []string
	for key, value := range s.Environment {
		switch {
		case value == nil:
			continue
		case key == "RELAY_DATABASE_URL":
			env = append(env, key+"="+database)
		case key == "NATS_URL":
			env = append(env, key+"="+natsURL)
		default:
			env = append(env, key+"="+*value)
		}
	}
	proc, err := sandbox.StartProcess(t.Context(), sandbox.ProcessConfig{Path: binary, Args: s.Command, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proc.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("relay %s:\n%s", strings.Join(s.Command, " "), proc.Tail())
		}
	})
	return proc
}

func wait(t *testing.T, proc *sandbox.Process, what string, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	code, err := proc.Wait(ctx)
	if err != nil || code != 0 {
		t.Fatalf("%s: exit %d, %v\n%s", what, code, err, proc.Tail())
	}
	for line := range strings.Lines(proc.Tail()) {
		if strings.Contains(line, "WARN") && strings.Contains(line, "RELAY_") {
			t.Errorf("%s complains about its environment: %s", what, line)
		}
	}
}

// TestUp does what docker compose up does, then commits an event and sees it in the stream, then stops the relay.
func TestUp(t *testing.T) {
	t.Parallel()
	binary := build(t, "v0.0.0-test")
	database, natsURL := sandbox.Database(t), sandbox.JetStream(t).URL()
	services := relays(t, load(t, nil))

	// Twice, since the set-up services also run when the project is brought up again.
	for _, round := range []string{"first", "second"} {
		for _, s := range services {
			if s.Name != "relay" {
				wait(t, start(t, binary, s, database, natsURL), s.Name+", "+round+" time", setUpLimit)
			}
		}
	}

	relay := services[len(services)-1]
	if relay.Name != "relay" {
		t.Fatalf("the last service is %s, not relay", relay.Name)
	}
	proc := start(t, binary, relay, database, natsURL)
	id := uuid.NewString()
	insert(t, database, *relay.Environment["RELAY_TABLE"], id)
	msg := first(t, natsURL, *relay.Environment["RELAY_STREAM"])
	if got := msg.Headers().Get(nats.MsgIdHdr); got != id {
		t.Errorf("the message has id %s, the event %s", got, id)
	}
	if want := strings.ReplaceAll(*relay.Environment["RELAY_SUBJECT"], "{topic}", "order.created"); msg.Subject() != want {
		t.Errorf("the message is on %s, want %s", msg.Subject(), want)
	}
	if got := string(msg.Data()); got != `{"total": 42}` {
		t.Errorf("the message says %s", got)
	}

	if err := proc.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	wait(t, proc, "relay after SIGTERM", time.Duration(*relay.StopGracePeriod))
}

// TestFileURLs looks at what TestUp replaces: the services are reached by their names.
func TestFileURLs(t *testing.T) {
	t.Parallel()
	project := load(t, nil)
	postgres := project.Services["postgres"].Environment
	for _, s := range relays(t, project) {
		cfg, err := pgx.ParseConfig(*s.Environment["RELAY_DATABASE_URL"])
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Host != "postgres" || cfg.User != *postgres["POSTGRES_USER"] || cfg.Database != *postgres["POSTGRES_DB"] {
			t.Errorf("%s: %s@%s/%s is not the database of the file", s.Name, cfg.User, cfg.Host, cfg.Database)
		}
		u, err := url.Parse(*s.Environment["NATS_URL"])
		if err != nil || u.Host != "nats:4222" {
			t.Errorf("%s: NATS_URL is %s, %v", s.Name, *s.Environment["NATS_URL"], err)
		}
	}
}

// insert commits one event as an application does.
func insert(t *testing.T, database, table, id string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(),
		"INSERT INTO "+table+" (id, topic, payload) VALUES ($1, 'order.created', $2)", id, `{"total": 42}`)
	if err != nil {
		t.Fatal(err)
	}
}

// first waits for the stream's first message.
func first(t *testing.T, natsURL, stream string) jetstream.Msg {
	t.Helper()
	nc, err := nats.Connect(natsURL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deliverLimit)
	defer cancel()
	consumer, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next(jetstream.FetchMaxWait(deliverLimit))
	if err != nil {
		t.Fatalf("no message within %v: %v", deliverLimit, err)
	}
	return msg
}
