package test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/harness"
)

// sized inserts an event whose payload has that many bytes.
const sized = `INSERT INTO outbox (id, topic, payload) VALUES ($1, 'order.created', repeat('x', $2))`

func textOutbox() []string {
	return []string{`CREATE TABLE outbox (id uuid, topic text, payload text)`}
}

// A payload over the smaller limit of server and stream.
func TestC19_PayloadTooLarge(t *testing.T) {
	t.Parallel()
	const kb = 1024
	for _, c := range []struct {
		name  string
		limit int // of the stream; 0: none
		bad   []int
		text  string
	}{
		{"max_msg_size", 32 * kb, []int{40 * kb, 64 * kb, 70 * kb}, "over the limit of 32768"},
		{"max_payload", 0, []int{64 * kb, 70 * kb}, "over the limit of 65536"}, // the headers count
	} {
		nats, err := sandbox.StartNATS(t.Context(), sandbox.NATSConfig{Configure: func(o *server.Options) { o.MaxPayload = 64 * kb }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nats.Close() })
		w := harness.New(t, harness.Config{
			NATSURL: nats.URL(), NATSAddr: nats.Addr(), DDL: textOutbox(),
			Stream: func(s *jetstream.StreamConfig) { window100ms(s); s.MaxMsgSize = int32(c.limit) },
		})
		r := &rows{t: t, w: w}
		r.put(sized, 20*kb)
		bad := make([]string, len(c.bad))
		for i, size := range c.bad {
			bad[i] = r.id()
			w.Exec(sized, bad[i], size)
		}
		r.put(sized, 20*kb)
		all := r.good
		r.good = all[:1]
		for i, id := range bad {
			t.Logf("%s: %d bytes", c.name, c.bad[i])
			r.halt(id, "headers and payload have up to "+fmt.Sprint(c.bad[i])[:1], c.text)
		}
		r.good = all
		r.rest()
	}
}

// A limit that is lowered while the relay runs: the broker refuses, alone in flight, and the relay halts.
func TestC19_LimitLoweredWhileRunning(t *testing.T) {
	t.Parallel()
	w := harness.New(t, harness.Config{Stream: window100ms, DDL: textOutbox()})
	r := &rows{t: t, w: w}
	relay := w.Start()
	r.put(sized, 20_000)
	w.WaitCount(1)
	w.WaitConfirmed()
	config := w.Stream().CachedInfo().Config
	config.MaxMsgSize = 10_000
	if _, err := w.JS.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	r.put(sized, 9_000)
	w.WaitCount(2)
	id := r.id()
	w.Exec(sized, id, 20_000)
	r.halted(relay, id, "the stream refuses it: message size exceeds maximum allowed (10054)")
	r.put(sized, 9_000)
	r.rest()
}
