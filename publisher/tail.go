package publisher

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-1cfd9858/relay/outbox"
)

// maxTailIDs bounds the ids that are held at once; a longer tail is read in pieces.
const maxTailIDs = 1 << 20

// key stands for an event id: a UUID's own 16 bytes, or as many of another id's hash.
type key [16]byte

func keyOf(id string) key {
	if len(id) == 36 {
		if u, err := uuid.Parse(id); err == nil {
			return key(u)
		}
	}
	sum := sha256.Sum256([]byte(id))
	return key(sum[:16])
}

// tail is what was read back of the stream: the ids of our own events that PostgreSQL may send again. An event counts as
// absent only when all of them have been compared.
type tail struct {
	ids     map[key]struct{}
	next    uint64 // the sequence from which more is to be read, 0 if all was
	last    outbox.Position
	foreign uint64 // messages that no relay of this slot wrote
}

// take reports whether the id is in the tail, and forgets it: an id is used once.
func (t *tail) take(id string) bool {
	if len(t.ids) == 0 {
		return false
	}
	k := keyOf(id)
	_, found := t.ids[k]
	delete(t.ids, k)
	return found
}

// merge adds what was read later.
func (t *tail) merge(later *tail) {
	if t.ids == nil {
		t.ids = later.ids
	}
	for k := range later.ids {
		t.ids[k] = struct{}{}
	}
	if later.last.Compare(t.last) > 0 {
		t.last = later.last
	}
	t.foreign += later.foreign
}

// tailReader reads the stream back, from its leader.
type tailReader struct {
	nc        *nats.Conn
	domain    string
	stream    Stream // its LastSeq is L
	origin    outbox.Origin
	confirmed pglogrepl.LSN
	max       int // ids to hold

	short bool // start has found that messages were removed before an own one that the confirmed LSN covers
}

var errNoMessage = errors.New("no message there")

type storedMessage struct {
	Seq    uint64 `json:"seq"`
	Header []byte `json:"hdrs"`
}

func (r *tailReader) get(ctx context.Context, request any) (storedMessage, error) {
	var answer struct {
		Message storedMessage `json:"message"`
	}
	err := apiRequest(ctx, r.nc, r.domain, "STREAM.MSG.GET."+r.stream.Name, request, &answer)
	var refusal *APIError
	if errors.As(err, &refusal) && refusal.ErrCode == 10037 {
		return storedMessage{}, errNoMessage
	}
	if err != nil {
		return storedMessage{}, fmt.Errorf("read stream %q back: %w", r.stream.Name, err)
	}
	return answer.Message, nil
}

// at returns the first message at a sequence or after it.
func (r *tailReader) at(ctx context.Context, seq uint64) (storedMessage, error) {
	return r.get(ctx, struct {
		Seq  uint64 `json:"seq"`
		Next string `json:"next_by_subj"`
	}{seq, ">"})
}

// own returns the event id and position of a message of this slot.
func (r *tailReader) own(h nats.Header) (string, outbox.Position, bool) {
	origin, position, err := outbox.ParsePosition(header(h, outbox.HeaderPosition))
	id := header(h, outbox.HeaderMsgID)
	return id, position, err == nil && origin == r.origin && id != ""
}

func header(h nats.Header, name string) string { // exact: Get would canonicalise
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func (r *tailReader) covered(p outbox.Position) bool { return p.CommitLSN < r.confirmed }

// start finds a sequence from which on every own message that the confirmed LSN does not cover is seen: it steps back
// from L, doubling the step, until an own message is covered.
func (r *tailReader) start(ctx context.Context) (uint64, error) {
	first := max(r.stream.FirstSeq, 1)
	for step := uint64(1); ; step *= 2 {
		from := first
		if r.stream.LastSeq >= first+step {
			from = r.stream.LastSeq - step + 1
		}
		m, err := r.at(ctx, from)
		switch {
		case errors.Is(err, errNoMessage):
		case err != nil:
			return 0, err
		case m.Seq <= r.stream.LastSeq:
			h, err := nats.DecodeHeadersMsg(m.Header)
			if _, position, own := r.own(h); err == nil && own && r.covered(position) {
				return m.Seq + 1, nil
			}
		}
		if from == first {
			r.short = first > 1
			return first, nil
		}
	}
}

// read reads the tail from a sequence to L. It holds at most max ids that keep does not take.
func (r *tailReader) read(ctx context.Context, from uint64, keep func(id string, p outbox.Position) bool) (*tail, error) {
	t := &tail{ids: map[key]struct{}{}}
	err := r.scan(ctx, from, func(seq uint64, h nats.Header) {
		id, position, own := r.own(h)
		switch {
		case !own:
			t.foreign++
		case r.covered(position), !keep(id, position), t.next != 0:
		case len(t.ids) >= r.max:
			t.next = seq
		default:
			t.ids[keyOf(id)] = struct{}{}
			if position.Compare(t.last) > 0 {
				t.last = position
			}
		}
	})
	return t, err
}

// shortScan is up to where single requests are quicker than making a consumer.
const shortScan = 8

// scan visits the headers of all messages from a sequence to L, in order.
func (r *tailReader) scan(ctx context.Context, from uint64, visit func(uint64, nats.Header)) error {
	to := r.stream.LastSeq
	if from > to {
		return nil
	}
	if to-from < shortScan || r.stream.Retention != "limits" { // other streams allow no second consumer
		_, err := r.scanSingly(ctx, from, visit)
		return err
	}
	next, err := r.scanConsumer(ctx, from, visit)
	if err == nil || ctx.Err() != nil {
		return err
	}
	// After the death of a node a consumer can take long to come, and some users may not make one.
	if _, singly := r.scanSingly(ctx, next, visit); singly != nil {
		return errors.Join(singly, err)
	}
	return nil
}

// scanSingly visits by one request a message. It returns the sequence after the last one visited.
func (r *tailReader) scanSingly(ctx context.Context, from uint64, visit func(uint64, nats.Header)) (uint64, error) {
	for from <= r.stream.LastSeq {
		m, err := r.at(ctx, from)
		if errors.Is(err, errNoMessage) || err == nil && m.Seq > r.stream.LastSeq {
			return from, nil
		}
		if err != nil {
			return from, err
		}
		h, err := nats.DecodeHeadersMsg(m.Header)
		if err != nil {
			h = nil // somebody else's
		}
		visit(m.Seq, h)
		from = m.Seq + 1
	}
	return from, nil
}

// scanConsumer visits through an ordered consumer that gets headers only. It returns the sequence after the last one
// visited, so that another way can go on there.
func (r *tailReader) scanConsumer(ctx context.Context, from uint64, visit func(uint64, nats.Header)) (uint64, error) {
	// The end is what the leader has: a consumer's own idea of "nothing pending" may be that of a lagging replica.
	end, err := r.get(ctx, struct {
		Last string `json:"last_by_subj"`
	}{">"})
	if errors.Is(err, errNoMessage) || err == nil && end.Seq < from {
		return from, nil
	}
	if err != nil {
		return from, err
	}
	js, err := jetstream.New(r.nc)
	if r.domain != "" {
		js, err = jetstream.NewWithDomain(r.nc, r.domain)
	}
	if err != nil {
		return from, fmt.Errorf("read stream %q back: %w", r.stream.Name, err)
	}
	consumer, err := js.OrderedConsumer(ctx, r.stream.Name, jetstream.OrderedConsumerConfig{
		HeadersOnly: true, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
		InactiveThreshold: 10 * time.Second, MaxResetAttempts: 2,
	})
	if err != nil {
		return from, fmt.Errorf("read stream %q back: %w", r.stream.Name, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(5000))
	if err != nil {
		return from, fmt.Errorf("read stream %q back: %w", r.stream.Name, err)
	}
	defer messages.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(scanPatience, func() { cancel(errScanStalled) })
	defer patience.Stop()
	for last := min(end.Seq, r.stream.LastSeq); from <= last; {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return from, fmt.Errorf("read stream %q back at sequence %d: %w", r.stream.Name, from, cmp.Or(context.Cause(ctx), err))
		}
		patience.Reset(scanPatience)
		meta, err := m.Metadata()
		if err != nil {
			return from, fmt.Errorf("read stream %q back: %w", r.stream.Name, err)
		}
		if meta.Sequence.Stream > last {
			break
		}
		visit(meta.Sequence.Stream, m.Headers())
		from = meta.Sequence.Stream + 1
	}
	return from, nil
}

// scanPatience is how long a consumer may take to deliver the next message.
const scanPatience = 3 * time.Second

var errScanStalled = fmt.Errorf("the consumer delivered nothing for %s", scanPatience)
