package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/outbox"
)

// Message is a message of a stream, without its payload.
type Message struct {
	Sequence     uint64
	Subject      string
	StoredAt     time.Time // by the broker's clock
	EventID      string    // "" if it has none
	Origin       outbox.Origin
	Position     outbox.Position
	CommittedAt  time.Time // by PostgreSQL's clock; zero if the message does not say
	AggregateID  string
	PayloadBytes int
}

// FromRelay reports whether a relay wrote the message: it has an event id and a position.
func (m *Message) FromRelay() bool { return m.Origin != outbox.Origin{} && m.EventID != "" }

// FollowConfig says which messages [Follow] visits. At most one of From, Since and Last is set; none: what comes from now on.
type FollowConfig struct {
	Stream string
	From   uint64    // the sequence to begin at
	Since  time.Time // begin at what was stored then or later
	Last   uint64    // begin with that many of the newest
	Once   bool      // end with the newest message that is there
}

// Follow visits a stream's messages in order, until visit returns an error, the connection ends, or ctx does. It only reads:
// it leaves no consumer behind. The error is that of visit, the cause of ctx, or what ended the reading; nil with Once.
func Follow(ctx context.Context, conn ConnConfig, cfg FollowConfig, visit func(Message) error) error {
	nc, err := Dial(ctx, conn)
	if err != nil {
		return err
	}
	defer nc.Close()
	f := follower{nc: nc, domain: conn.JSDomain, name: cfg.Stream}
	stream, err := InspectStream(ctx, nc, conn.JSDomain, cfg.Stream)
	if err != nil {
		return err
	}
	from, err := f.start(ctx, stream, cfg)
	if err != nil {
		return err
	}
	var last uint64 // 0: for ever
	if cfg.Once {
		newest, err := f.get(ctx, getRequest{Last: ">"})
		if errors.Is(err, errNoMessage) || err == nil && newest.Sequence < from {
			return nil
		}
		if err != nil {
			return err
		}
		last = newest.Sequence
	}
	if stream.Retention != "limits" { // other streams allow no second consumer
		return f.singly(ctx, from, last, visit)
	}
	return f.consume(ctx, from, last, visit)
}

// InspectStreamAndLast asks for a stream and for its newest message, nil if there is none. Errors are those of [Dial] and
// [InspectStream]; a newest message that cannot be read counts as none.
func InspectStreamAndLast(ctx context.Context, conn ConnConfig, name string) (Stream, *Message, error) {
	nc, err := Dial(ctx, conn)
	if err != nil {
		return Stream{}, nil, err
	}
	defer nc.Close()
	stream, err := InspectStream(ctx, nc, conn.JSDomain, name)
	if err != nil || stream.Messages == 0 {
		return stream, nil, err
	}
	f := follower{nc: nc, domain: conn.JSDomain, name: name}
	last, err := f.get(ctx, getRequest{Last: ">"})
	if err != nil {
		return stream, nil, nil //nolint:nilerr // what the stream says is an answer without it
	}
	return stream, &last, nil
}

type follower struct {
	nc           *nats.Conn
	domain, name string
}

// getRequest asks for one message: the first of any subject at a sequence or after it, or the last of a subject.
type getRequest struct {
	Seq  uint64 `json:"seq,omitempty"`
	Next string `json:"next_by_subj,omitempty"`
	Last string `json:"last_by_subj,omitempty"`
}

func (f follower) get(ctx context.Context, request getRequest) (Message, error) {
	var answer struct {
		Message struct {
			Seq     uint64    `json:"seq"`
			Subject string    `json:"subject"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	err := apiRequest(ctx, f.nc, f.domain, "STREAM.MSG.GET."+f.name, request, &answer)
	if refusal, is := errors.AsType[*APIError](err); is && refusal.ErrCode == 10037 {
		return Message{}, errNoMessage
	}
	if err != nil {
		return Message{}, fmt.Errorf("read stream %q: %w", f.name, err)
	}
	stored := answer.Message
	h, err := nats.DecodeHeadersMsg(stored.Header)
	if err != nil {
		h = nil // somebody else's
	}
	m := Message{Sequence: stored.Seq, Subject: stored.Subject, StoredAt: stored.Time, PayloadBytes: len(stored.Data)}
	m.read(h)
	return m, nil
}

func (f follower) at(ctx context.Context, seq uint64) (Message, error) {
	return f.get(ctx, getRequest{Seq: max(seq, 1), Next: ">"})
}

// read takes what a relay writes into the headers.
func (m *Message) read(h nats.Header) {
	m.EventID, m.AggregateID = header(h, outbox.HeaderMsgID), header(h, outbox.HeaderAggregateID)
	if origin, position, err := outbox.ParsePosition(header(h, outbox.HeaderPosition)); err == nil {
		m.Origin, m.Position = origin, position
	}
	if at, err := time.Parse(time.RFC3339Nano, header(h, outbox.HeaderCommittedAt)); err == nil {
		m.CommittedAt = at
	}
}

// start returns the first sequence to visit.
func (f follower) start(ctx context.Context, s Stream, cfg FollowConfig) (uint64, error) {
	first := max(s.FirstSeq, 1)
	switch {
	case cfg.From > s.LastSeq+1 && !cfg.Once: // the stream was made anew since
		return first, nil
	case cfg.From > 0:
		return cfg.From, nil
	case !cfg.Since.IsZero():
		return f.since(ctx, first, s.LastSeq+1, cfg.Since)
	}
	return max(first, s.LastSeq+1-min(cfg.Last, s.LastSeq)), nil
}

// since finds the first sequence in [low, high) that was stored at a time or later, high if none was.
func (f follower) since(ctx context.Context, low, high uint64, at time.Time) (uint64, error) {
	for low < high {
		middle := low + (high-low)/2
		m, err := f.at(ctx, middle)
		switch {
		case errors.Is(err, errNoMessage), err == nil && m.Sequence >= high:
			high = middle
		case err != nil:
			return 0, err
		case m.StoredAt.Before(at):
			low = m.Sequence + 1
		default:
			high = middle
		}
	}
	return low, nil
}

// lookEvery is how often a stream that cannot be consumed is asked whether there is more.
const lookEvery = 250 * time.Millisecond

// singly visits by one request a message, up to last.
func (f follower) singly(ctx context.Context, from, last uint64, visit func(Message) error) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for last == 0 || from <= last {
		m, err := f.at(ctx, from)
		switch {
		case errors.Is(err, errNoMessage) && last > 0:
			return nil
		case errors.Is(err, errNoMessage):
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-look.C:
			}
			continue
		case err != nil:
			return cmp.Or(context.Cause(ctx), err)
		}
		if err := visit(m); err != nil {
			return err
		}
		from = m.Sequence + 1
	}
	return nil
}

// consume visits through an ordered consumer, up to last.
func (f follower) consume(ctx context.Context, from, last uint64, visit func(Message) error) error {
	js, err := jetstream.New(f.nc)
	if f.domain != "" {
		js, err = jetstream.NewWithDomain(f.nc, f.domain)
	}
	if err != nil {
		return fmt.Errorf("follow stream %q: %w", f.name, err)
	}
	consumer, err := js.OrderedConsumer(ctx, f.name, jetstream.OrderedConsumerConfig{
		HeadersOnly: true, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
		InactiveThreshold: 10 * time.Second, MaxResetAttempts: 2,
	})
	if err != nil {
		return fmt.Errorf("follow stream %q: %w", f.name, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("follow stream %q: %w", f.name, err)
	}
	defer func() {
		messages.Stop()
		if info := consumer.CachedInfo(); info != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = js.DeleteConsumer(ctx, f.name, info.Name) // the broker forgets it by itself, but later
		}
	}()
	for {
		raw, err := messages.Next(jetstream.NextContext(ctx))
		if errors.Is(err, jetstream.ErrNoHeartbeat) && ctx.Err() == nil {
			continue // the consumer is made anew behind what was delivered
		}
		if err != nil {
			return cmp.Or(context.Cause(ctx), fmt.Errorf("follow stream %q: %w", f.name, err))
		}
		about, err := raw.Metadata()
		if err != nil {
			return fmt.Errorf("follow stream %q: %w", f.name, err)
		}
		m := Message{Sequence: about.Sequence.Stream, Subject: raw.Subject(), StoredAt: about.Timestamp}
		m.PayloadBytes, _ = strconv.Atoi(header(raw.Headers(), nats.MsgSize)) // where headers alone are sent
		m.read(raw.Headers())
		if err := visit(m); err != nil || last > 0 && m.Sequence >= last {
			return err
		}
	}
}
