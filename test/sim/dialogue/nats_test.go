package dialogue

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/sim/history"
	"github.com/seed-1cfd9858/relay/test/sim/jsmodel"
	"github.com/seed-1cfd9858/relay/test/sim/simnet"
)

// broker is a NATS server with one stream S that takes s.>.
type broker interface {
	dial(t *testing.T) *nats.Conn
	restart(t *testing.T)
	remove(t *testing.T)
	create(t *testing.T)
}

// limits are those of the stream of a script.
type limits struct {
	messages   int
	window     time.Duration
	replicated bool
}

type modelBroker struct {
	server *jsmodel.Server
	client *simnet.Process
}

func newModelBroker(l limits) *modelBroker {
	s := jsmodel.New(jsmodel.Config{Stream: "S", Prefix: "s.", Window: l.window, MaxMsgs: l.messages, Replicated: l.replicated, Quorum: time.Millisecond}, jsmodel.Quiet{},
		history.NewLog(), rand.New(rand.NewPCG(1, 1))) //nolint:gosec // repeatable on purpose
	return &modelBroker{server: s, client: simnet.NewProcess("client", nil)}
}

func (b *modelBroker) dial(t *testing.T) *nats.Conn {
	return connect(t, "nats://127.0.0.1:4222", nats.SetCustomDialer(dialFunc(func() (net.Conn, error) {
		return b.client.Dial(context.Background(), b.server.Proc, simnet.Link{Buffer: 1 << 20})
	})))
}

func (b *modelBroker) restart(*testing.T) {
	b.server.Down(false)
	b.server.Start()
}
func (b *modelBroker) remove(*testing.T) { b.server.Delete() }
func (b *modelBroker) create(*testing.T) { b.server.Create() }

type dialFunc func() (net.Conn, error)

func (f dialFunc) Dial(string, string) (net.Conn, error) { return f() }

type realBroker struct {
	server *sandbox.NATS
	limits limits
}

func newRealBroker(t *testing.T, l limits) *realBroker {
	t.Helper()
	server, err := sandbox.StartNATS(t.Context(), sandbox.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	b := &realBroker{server: server, limits: l}
	b.create(t)
	return b
}

func (b *realBroker) dial(t *testing.T) *nats.Conn { return connect(t, b.server.URL()) }

func (b *realBroker) restart(t *testing.T) {
	b.server.Stop()
	if err := b.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *realBroker) manage(t *testing.T, do func(jetstream.JetStream) error) {
	t.Helper()
	nc := b.dial(t)
	js, err := jetstream.New(nc)
	if err == nil {
		err = do(js)
	}
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

func (b *realBroker) create(t *testing.T) {
	b.manage(t, func(js jetstream.JetStream) error {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "S", Subjects: []string{"s.>"}, Discard: jetstream.DiscardNew, MaxMsgs: int64(b.limits.messages), Duplicates: b.limits.window,
		})
		return err
	})
}

func (b *realBroker) remove(t *testing.T) {
	b.manage(t, func(js jetstream.JetStream) error { return js.DeleteStream(t.Context(), "S") })
}

func connect(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	options = append(options, nats.NoReconnect(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// talk is a client in a script.
type talk struct {
	*transcript
	t  *testing.T
	b  broker
	nc *nats.Conn
}

// send publishes one message and notes the answer. header holds pairs.
func (x *talk) send(subject string, header ...string) { x.answer(x.message(subject, header...)) }

func (x *talk) message(subject string, header ...string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = []byte("body")
	for i := 0; i+1 < len(header); i += 2 {
		m.Header[header[i]] = []string{header[i+1]}
	}
	return m
}

func (x *talk) answer(m *nats.Msg) {
	x.t.Helper()
	answer, err := x.nc.RequestMsg(m, 5*time.Second)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		x.add("%s: no responders", m.Subject)
	case err != nil:
		x.t.Fatalf("%s: %v", m.Subject, err)
	default:
		x.add("%s: %s", m.Subject, plain(answer.Data))
	}
}

// plain writes JSON with sorted keys. Spaces mean nothing.
func plain(data []byte) string {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return string(data)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

const (
	msgID    = "Nats-Msg-Id"
	expected = "Nats-Expected-Last-Sequence"
)

// ask makes a request of the API and notes what a script names of the answer.
func (x *talk) ask(subject, body string, fields ...string) {
	x.t.Helper()
	answer, err := x.nc.Request("$JS.API."+subject, []byte(body), 5*time.Second)
	if err != nil {
		x.t.Fatalf("%s: %v", subject, err)
	}
	var v map[string]any
	if err := json.Unmarshal(answer.Data, &v); err != nil {
		x.t.Fatal(err)
	}
	if v["error"] != nil {
		x.add("%s %s: %v", subject, body, v["error"])
		return
	}
	for _, f := range fields {
		at := any(v)
		for name := range strings.SplitSeq(f, ".") {
			object, _ := at.(map[string]any)
			at = object[name]
		}
		if f == "message.hdrs" {
			at = sortedHeader(at)
		}
		x.add("%s %s: %s = %v", subject, body, f, at)
	}
}

// sortedHeader is a message's header in an order of its own: the client library writes the lines in that of a map.
func sortedHeader(encoded any) string {
	text, _ := encoded.(string)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\r\n")
	sort.Strings(lines)
	return fmt.Sprintf("%q", lines)
}

// pull reads with a consumer of headers and notes what comes.
func (x *talk) pull(from uint64, n int) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 5*time.Second)
	defer cancel()
	js, err := jetstream.New(x.nc)
	if err != nil {
		x.t.Fatal(err)
	}
	c, err := js.OrderedConsumer(ctx, "S", jetstream.OrderedConsumerConfig{
		HeadersOnly: true, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
	})
	if err != nil {
		x.add("consumer: %v", err)
		return
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(100))
	if err != nil {
		x.t.Fatal(err)
	}
	defer messages.Stop()
	for range n {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			x.t.Fatal(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			x.t.Fatal(err)
		}
		var names []string
		for name, values := range m.Headers() {
			names = append(names, name+"="+strings.Join(values, ","))
		}
		sort.Strings(names)
		x.add("%s: sequence %d, delivered %d, %d pending, %q, %v", m.Subject(), meta.Sequence.Stream, meta.Sequence.Consumer, meta.NumPending, m.Data(), names)
	}
}

func (x *talk) info() {
	x.t.Helper()
	x.ask("STREAM.INFO.S", "", "config.name", "config.subjects", "config.retention", "config.storage", "config.discard", "config.num_replicas",
		"config.max_msg_size", "config.sealed", "state.messages", "state.first_seq", "state.last_seq")
}

func (x *talk) get(body string) {
	x.t.Helper()
	x.ask("STREAM.MSG.GET.S", body, "message.seq", "message.subject", "message.hdrs", "message.data")
}

func TestNATS(t *testing.T) {
	t.Parallel()
	for _, s := range natsScripts {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if s.limits.window == 0 {
				s.limits.window = 2 * time.Minute
			}
			play := func(b broker) transcript {
				var x transcript
				s.play(&talk{transcript: &x, t: t, b: b, nc: b.dial(t)})
				return x
			}
			same(t, play(newModelBroker(s.limits)), play(newRealBroker(t, s.limits)))
		})
	}
}
