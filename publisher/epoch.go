package publisher

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-1cfd9858/relay/outbox"
)

// link is one connection to NATS. Its handlers run on goroutines of the client library and reach the epoch that uses it
// through an atomic pointer.
type link struct {
	nc    *nats.Conn
	epoch atomic.Pointer[epoch]
	dead  atomic.Bool
}

func dialLink(ctx context.Context, cfg ConnConfig) (*link, error) {
	l := &link{}
	// Subjects and headers have been checked by then, once each, by rules that are stricter.
	nc, err := Dial(ctx, cfg, nats.SkipSubjectValidation(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.fault(err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { l.fault(err) }),
		nats.ClosedHandler(func(*nats.Conn) { l.fault(nats.ErrConnectionClosed) }))
	if err != nil {
		return nil, err
	}
	l.nc = nc
	return l, nil
}

// fault takes an error of the connection. After any but a refused subject, bytes may be missing on the way: the
// connection is not used again.
func (l *link) fault(err error) {
	reason := ReasonConnection
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		reason = ReasonPermission
	default:
		l.dead.Store(true)
	}
	if err == nil {
		err = nats.ErrConnectionClosed
	}
	if e := l.epoch.Load(); e != nil {
		e.fail(&EpochError{Reason: reason, Text: err.Error(), cause: err})
	}
}

// epoch is one unbroken run of publishing on one connection, from the stream's last sequence L. The fields up to sent
// belong to the loop; answers come in on a goroutine of the client library, which owns nothing: it moves counters.
//
// Fast-ingest batches (NATS 2.14) would be another way for an epoch to send and to be answered, with the same life.
type epoch struct {
	link    *link
	sub     *nats.Subscription
	base    uint64 // L; message i of the epoch is stored at L + i, or not at all
	message message
	sent    uint64 // messages sent
	counted uint64 // acknowledgements that the loop has taken

	parser *answerParser
	wake   func()
	wakeAt atomic.Uint64 // wake the loop when so many are acknowledged

	// acked counts the messages acknowledged in order, each at its predicted sequence. It stands still once failed.
	acked    atomic.Uint64
	answered atomic.Uint64 // answers of any kind
	failed   atomic.Pointer[EpochError]

	settled bool // every answer is in, or its time is over; of settle
}

// never is a wakeAt that is not reached.
const never = ^uint64(0)

func newEpoch(l *link, base uint64, origin string, parser *answerParser, wake func()) (*epoch, error) {
	e := &epoch{link: l, base: base, parser: parser, wake: wake}
	e.wakeAt.Store(never)
	inbox := l.nc.NewInbox() // of this epoch alone: an answer to an earlier one cannot come in here
	sub, err := l.nc.Subscribe(inbox, e.answer)
	if err == nil {
		err = sub.SetPendingLimits(-1, -1)
	}
	if err != nil {
		return nil, fmt.Errorf("subscribe to the answers: %w", err)
	}
	e.sub = sub
	e.message.init(inbox, origin)
	l.epoch.Store(e)
	if l.dead.Load() { // it failed before it could reach the epoch
		e.fail(&EpochError{Reason: ReasonConnection, Text: nats.ErrConnectionClosed.Error(), cause: nats.ErrConnectionClosed})
	}
	return e, nil
}

// room reports whether one more message may be in flight: one at first, then twice as many at each turn. A wrong base
// then costs one refusal, and a full stream refuses few.
func (e *epoch) room() bool { return e.sent-e.counted <= e.counted }

// send publishes an event at the next predicted sequence. The error is a *outbox.PoisonError or a *EpochError.
func (e *epoch) send(ev *outbox.Event) error {
	if err := e.link.nc.PublishMsg(e.message.of(ev, e.base+e.sent)); err != nil {
		return publishError(err, ev)
	}
	e.sent++
	return nil
}

func (e *epoch) answer(m *nats.Msg) {
	acked := e.acked.Load()
	seq, failure := e.parser.parse(m)
	if failure == nil && seq != e.base+acked+1 {
		failure = &EpochError{
			Reason: ReasonSequence,
			Text:   fmt.Sprintf("stored at sequence %d, predicted was %d", seq, e.base+acked+1),
		}
	}
	switch {
	case e.failed.Load() != nil: // only counted now
	case failure != nil:
		e.fail(failure)
	default:
		acked++
		e.acked.Store(acked)
	}
	e.answered.Add(1)
	if acked >= e.wakeAt.Load() {
		e.wakeAt.Store(never)
		e.wake()
	}
}

func (e *epoch) fail(failure *EpochError) {
	if e.failed.CompareAndSwap(nil, failure) {
		e.wake()
	}
}

// settle waits, for a bounded time, until every message of an ended epoch has its answer, so that what the stream's
// leader says next includes them. An answer that never comes costs the bound, once; the fence makes up for it. No answers
// are taken afterwards.
func (e *epoch) settle(ctx context.Context) {
	if e.settled {
		return
	}
	const poll = time.Millisecond // answers are counted, not signalled: this path is rare
	limit := time.NewTimer(settleTimeout)
	defer limit.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for over := false; !over && e.answered.Load() < e.sent && !e.link.dead.Load(); {
		select {
		case <-ctx.Done():
			return // whoever comes next goes on with it
		case <-limit.C:
			over = true
		case <-tick.C:
		}
	}
	e.settled = true
	_ = e.sub.Unsubscribe() // fails only on a connection that is gone
}

const settleTimeout = 2 * time.Second

// alone reports whether the answer that ended the epoch names its event for certain: the oldest one without an
// acknowledgement was the only one. It may be asked once the epoch has settled.
func (e *epoch) alone() bool {
	return e.answered.Load() == e.sent && e.sent-e.acked.Load() == 1
}

// end detaches the epoch from its connection. Answers that are out still come in, until it has settled.
func (e *epoch) end() { e.link.epoch.CompareAndSwap(e, nil) }

// message is the one message that an epoch sends over and over: the client library has serialised it when PublishMsg
// returns.
type message struct {
	msg    nats.Msg
	origin string

	id, expected, position, committedAt, aggregateID, sequence []string

	committed time.Time // whose text committedAt holds
	scratch   []byte
	extra     []string // names of the row's own headers in msg
}

func (m *message) init(reply, origin string) {
	m.origin = origin
	m.msg = nats.Msg{Reply: reply, Header: nats.Header{}}
	for name, value := range map[string]*[]string{
		outbox.HeaderMsgID: &m.id, nats.ExpectedLastSeqHdr: &m.expected, outbox.HeaderPosition: &m.position,
		outbox.HeaderCommittedAt: &m.committedAt,
	} {
		*value = []string{""}
		m.msg.Header[name] = *value
	}
	m.aggregateID, m.sequence = []string{""}, []string{""}
}

func (m *message) of(ev *outbox.Event, expected uint64) *nats.Msg {
	header := m.msg.Header
	for _, name := range m.extra {
		delete(header, name)
	}
	m.extra = m.extra[:0]

	m.id[0] = ev.ID
	m.scratch = strconv.AppendUint(m.scratch[:0], expected, 10)
	m.expected[0] = string(m.scratch)
	m.scratch = outbox.AppendPosition(m.scratch[:0], m.origin, ev.Position)
	m.position[0] = string(m.scratch)
	if !ev.CommitTime.Equal(m.committed) {
		m.committed = ev.CommitTime
		m.scratch = ev.CommitTime.AppendFormat(m.scratch[:0], time.RFC3339Nano)
		m.committedAt[0] = string(m.scratch)
	}
	if ev.AggregateID != "" {
		m.aggregateID[0] = ev.AggregateID
		header[outbox.HeaderAggregateID] = m.aggregateID
		m.extra = append(m.extra, outbox.HeaderAggregateID)
	}
	if ev.Sequence != "" {
		m.sequence[0] = ev.Sequence
		header[outbox.HeaderSequence] = m.sequence
		m.extra = append(m.extra, outbox.HeaderSequence)
	}
	for _, h := range ev.Headers {
		header[h.Name] = append(header[h.Name], h.Value)
		m.extra = append(m.extra, h.Name)
	}
	m.msg.Subject, m.msg.Data = ev.Subject, ev.Payload
	return &m.msg
}
