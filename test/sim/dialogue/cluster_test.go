package dialogue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// realCluster is three NATS servers in this process, with a stream that all of them hold.
type realCluster struct {
	realBroker
	servers []*server.Server
}

func newRealCluster(t *testing.T) *realCluster {
	t.Helper()
	var routes []*url.URL
	for range 3 {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		_ = l.Close()
	}
	c := &realCluster{}
	for i, route := range routes {
		port, err := strconv.Atoi(route.Port())
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true,
			StoreDir: t.TempDir(), Routes: routes, Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		c.servers = append(c.servers, s)
	}
	for _, s := range c.servers {
		if !s.ReadyForConnections(3 * patience) {
			t.Fatal("a server does not start")
		}
	}
	return c
}

// reset makes the stream anew.
func (c *realCluster) reset(t *testing.T, window time.Duration) {
	t.Helper()
	sandbox.WaitFor(t, 3*patience, "the stream is made", func() (bool, error) {
		nc, err := nats.Connect(c.servers[0].ClientURL())
		if err != nil {
			return false, err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return false, err
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := js.DeleteStream(ctx, "S"); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return false, err
		}
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "S", Subjects: []string{"s.>"}, Discard: jetstream.DiscardNew, Replicas: 3, Duplicates: window,
		})
		return err == nil, err
	})
}

func (c *realCluster) dial(t *testing.T) *nats.Conn { return connect(t, c.servers[0].ClientURL()) }

// clusterScripts are what only a replicated stream shows.
var clusterScripts = []struct {
	name string
	play func(x *talk)
}{
	{"stored in order", func(x *talk) { x.burst(number) }},
	{"one that does not fit, and all behind it", func(x *talk) {
		x.burst(func(i int) string { return number(i + i/5) })
	}},
	{"duplicate with the old fence", func(x *talk) {
		x.send("s.a", msgID, "a", expected, "0")
		x.send("s.a", msgID, "a", expected, "0")
		x.send("s.a", msgID, "b", expected, "1")
	}},
	{"duplicate with a fence that never fits", func(x *talk) {
		x.send("s.a", msgID, "a", expected, "0")
		x.send("s.a", msgID, "a", expected, "9")
	}},
	{"refused at another sequence", func(x *talk) {
		x.send("s.a", msgID, "a", expected, "7")
		x.send("s.a", msgID, "a", expected, "0")
	}},
	{"expected stream", func(x *talk) { x.send("s.a", "Nats-Expected-Stream", "T", expected, "9") }},
	{"what is stored is there", func(x *talk) {
		x.send("s.a", msgID, "a", expected, "0")
		x.send("s.b", msgID, "b", expected, "1")
		x.info()
		x.get(`{"seq":2}`)
		x.get(`{"last_by_subj":">"}`)
	}},
}

// burst sends ten messages at once and notes the answers by what they were sent with: an error can overtake.
func (x *talk) burst(fence func(i int) string) {
	x.t.Helper()
	var subs []*nats.Subscription
	for i := range 10 {
		sub, err := x.nc.SubscribeSync(x.nc.NewInbox())
		if err != nil {
			x.t.Fatal(err)
		}
		m := x.message("s.a", msgID, number(i), expected, fence(i))
		m.Reply = sub.Subject
		if err := x.nc.PublishMsg(m); err != nil {
			x.t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	for i, sub := range subs {
		m, err := sub.NextMsg(5 * time.Second)
		if err != nil {
			x.t.Fatal(err)
		}
		x.add("%d: %s", i, plain(m.Data))
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	real := newRealCluster(t)
	for _, s := range clusterScripts {
		t.Run(s.name, func(t *testing.T) {
			l := limits{window: 2 * time.Minute, replicated: true}
			play := func(b broker) transcript {
				var x transcript
				s.play(&talk{transcript: &x, t: t, b: b, nc: b.dial(t)})
				return x
			}
			real.reset(t, l.window)
			same(t, play(newModelBroker(l)), play(real))
		})
	}
}
