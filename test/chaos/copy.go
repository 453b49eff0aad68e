package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// streamCopy is chaos' own copy of what was stored, from the first message on. It is read while the faults go on: what is
// purged later, or lost by the broker, is still in it. It is safe for concurrent use.
type streamCopy struct {
	world  *world
	nc     *nats.Conn
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu       sync.Mutex
	messages []message
	holes    []string // places where the stream was shorter than its copy
}

const (
	copyIdle      = 500 * time.Millisecond // without a message, until the stream is asked whether there are more
	foreignHeader = "Chaos-Foreign"        // of messages that no relay has published
)

var errGap = errors.New("a message is missing")

// copyStream begins to read. It has the stream's first message, if it begins before that.
func (w *world) copyStream(ctx context.Context) (*streamCopy, error) {
	nc, err := nats.Connect(w.broker.url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.PingInterval(time.Second),
		nats.MaxPingsOutstanding(2), nats.Timeout(time.Second), nats.IgnoreDiscoveredServers(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // what it means the reader sees itself
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &streamCopy{world: w, nc: nc, cancel: cancel}
	c.all.Go(func() {
		for sleep(ctx, pollEvery) {
			_ = c.read(ctx) // whatever failed, it goes on behind the last message
		}
	})
	return c, nil
}

func (c *streamCopy) stop() {
	c.cancel()
	c.all.Wait()
	c.nc.Close()
}

func (c *streamCopy) read(ctx context.Context) error {
	js, err := jetstream.New(c.nc)
	if err != nil {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	stream, err := js.Stream(asked, streamName)
	if err != nil {
		return err
	}
	last, now := c.last(), stream.CachedInfo().State.LastSeq
	if now < last {
		c.hole(fmt.Sprintf("the stream ends at %d, and had a message at %d", now, last))
	}
	if now <= last {
		return nil
	}
	consumer, err := stream.CreateConsumer(asked, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: last + 1, HeadersOnly: true, AckPolicy: jetstream.AckNonePolicy,
		InactiveThreshold: 10 * time.Second, MemoryStorage: true, Replicas: 1,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1000), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		next, cancel := context.WithTimeout(ctx, copyIdle)
		m, err := messages.Next(jetstream.NextContext(next))
		cancel()
		if err != nil {
			return err
		}
		if err := c.take(m); err != nil {
			return err
		}
	}
}

func (c *streamCopy) take(m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	seq, last := meta.Sequence.Stream, c.last()
	switch {
	case seq <= last:
		return nil // delivered again
	case seq > last+1 && meta.Sequence.Consumer > 1:
		return errGap // lost with a connection: another consumer begins there
	case seq > last+1:
		c.hole(fmt.Sprintf("the stream has nothing between %d and %d", last, seq))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages = append(c.messages, message{
		seq: seq, id: m.Headers().Get(jetstream.MsgIDHeader), at: meta.Timestamp, foreign: m.Headers().Get(foreignHeader) != "",
	})
	return nil
}

// last is the sequence up to which the copy goes.
func (c *streamCopy) last() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.messages) == 0 {
		return 0
	}
	return c.messages[len(c.messages)-1].seq
}

func (c *streamCopy) hole(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.holes) < shown {
		c.holes = append(c.holes, text)
	}
}

// complete waits until the copy has all that the stream has.
func (c *streamCopy) complete(ctx context.Context) error {
	return waitFor(ctx, settleLimit, "the stream is read", func() (bool, error) {
		end := uint64(0)
		err := c.world.withStream(ctx, func(_ context.Context, _ jetstream.JetStream, stream jetstream.Stream) error {
			end = stream.CachedInfo().State.LastSeq
			return nil
		})
		return err == nil && c.last() >= end, nil
	})
}

// got returns what there is.
func (c *streamCopy) got() ([]message, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.messages, c.holes
}
