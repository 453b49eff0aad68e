package inbox

import (
	"fmt"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/outbox"
)

// Message is one event as it was delivered.
type Message struct {
	ID          string // Nats-Msg-Id: of one event and no other
	Subject     string
	AggregateID string // scope of ordering; "": none
	Sequence    int64  // number inside the aggregate, from 1; 0: none
	Position    string // Relay-Position; "" if no relay has published it
	CommittedAt time.Time
	Header      nats.Header
	Data        []byte

	Stream         string
	StreamSequence uint64
}

// delivery is a message on its way through the runner. Its fields belong to whoever was handed it.
type delivery struct {
	Message
	msg      jetstream.Msg
	number   uint64    // of the delivery
	kept     time.Time // when its ack deadline was moved last; of keep
	attempts int       // that failed
	pauses   *backoff.ExponentialBackOff
	missing  time.Time // since when it waits for a number before its own; zero: it does not
}

func receive(msg jetstream.Msg) (*delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("message on %s: %w", msg.Subject(), err)
	}
	d := &delivery{
		msg: msg, kept: time.Now(), number: meta.Sequence.Consumer, attempts: int(meta.NumDelivered) - 1,
		Message: Message{
			Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(), Stream: meta.Stream, StreamSequence: meta.Sequence.Stream,
		},
	}
	d.fill()
	return d, nil
}

// fill reads the headers.
func (m *Message) fill() {
	m.ID, m.AggregateID = m.Header.Get(outbox.HeaderMsgID), m.Header.Get(outbox.HeaderAggregateID)
	m.Position = m.Header.Get(outbox.HeaderPosition)
	m.Sequence, _ = strconv.ParseInt(m.Header.Get(outbox.HeaderSequence), 10, 64) // what is no number numbers nothing
	m.CommittedAt, _ = time.Parse(time.RFC3339Nano, m.Header.Get(outbox.HeaderCommittedAt))
}

// key names the lane: what has one is handled one after the other.
func (d *delivery) key() string {
	if d.AggregateID != "" {
		return "a" + d.AggregateID
	}
	return "m" + strconv.FormatUint(d.StreamSequence, 10)
}

// numbered reports whether the event has a place in its aggregate.
func (d *delivery) numbered() bool { return d.AggregateID != "" && d.Sequence > 0 }

// deadID names the message in the table of the dead.
func (d *delivery) deadID() string {
	if d.ID != "" {
		return d.ID
	}
	return fmt.Sprintf("%s:%d", d.Stream, d.StreamSequence)
}
