package publisher

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/outbox"
)

// Defaults of a Config.
const (
	DefaultStream      = "OUTBOX"
	DefaultWindow      = 8192
	DefaultWindowBytes = 64 << 20
	DefaultAckTimeout  = 10 * time.Second
)

// Config says where events go and how many may wait.
type Config struct {
	Conn        ConnConfig
	Stream      string
	Template    outbox.Template
	Window      int           // events that may be read and not stored; 0: DefaultWindow
	WindowBytes int           // their bytes, payload and headers and outbox.EventOverhead each; 0: DefaultWindowBytes
	AckTimeout  time.Duration // an epoch ends when events wait and none was acked for so long; 0: DefaultAckTimeout
	// Skip holds the positions, in the form of the header Relay-Position, of events that are not to be stored.
	Skip map[string]bool
}

// Validate joins all that is wrong with the configuration, apart from the connection's, which has its own.
func (c Config) Validate() error {
	var errs []error
	if c.Window < 0 || c.Window > 1<<20 {
		errs = append(errs, &ConfigError{Key: "window", Value: fmt.Sprint(c.Window), Reason: "want 1 to 1048576 events"})
	}
	if c.WindowBytes < 0 {
		errs = append(errs, &ConfigError{Key: "window-bytes", Value: fmt.Sprint(c.WindowBytes), Reason: "want a positive number of bytes"})
	}
	if c.AckTimeout < 0 {
		errs = append(errs, &ConfigError{Key: "ack-timeout", Value: c.AckTimeout.String(), Reason: "want a positive duration"})
	}
	for p := range c.Skip {
		if _, _, err := outbox.ParsePosition(p); err != nil {
			errs = append(errs, &ConfigError{Key: "skip-event", Value: p, Reason: outbox.ErrPosition.Error()})
		}
	}
	return errors.Join(errs...)
}

// Counts are what happened since the publisher was made.
type Counts struct {
	Published  uint64 // events acked by the stream
	Skipped    uint64 // events that the stream had already, found by reading it back
	Duplicates uint64 // events whose id the stream had from elsewhere
	Dropped    uint64 // events that the operator told to skip
	Reorders   uint64 // events found stored before an earlier one
	Foreign    uint64 // messages of others seen in the tail
	Epochs     uint64 // epochs that began
}

// Publisher is the window of events that wait and the epoch that stores them. It is owned by one goroutine; Resume.Run is
// the one part that runs beside it.
type Publisher struct {
	cfg    Config
	log    *slog.Logger
	counts Counts

	window     *window
	origin     outbox.Origin
	originText string
	wake       func()
	tail       *tail
	absent     bool // an event of the window was compared with the present tail and is not in it
	limits     outbox.Limits
	parser     *answerParser

	link     *link
	epoch    *epoch
	ended    *epoch    // the one before, until the next begins
	suspect  uint64    // ordinal of the oldest event that it had in flight; 0 once a new session has begun
	last     uint64    // sequence up to which all is known to be stored in order
	acked    uint64    // highest sequence acked in this process
	anchor   anchor    // the message at the sequence last
	progress time.Time // of the present epoch: when the first message was sent, or the last answer came in
	closing  sync.WaitGroup
	maxTail  int // ids to hold
}

// New returns a publisher without a session.
func New(cfg Config, log *slog.Logger) *Publisher {
	if cfg.Window == 0 {
		cfg.Window = DefaultWindow
	}
	if cfg.WindowBytes == 0 {
		cfg.WindowBytes = DefaultWindowBytes
	}
	if cfg.AckTimeout == 0 {
		cfg.AckTimeout = DefaultAckTimeout
	}
	return &Publisher{
		cfg: cfg, log: log, window: newWindow(cfg.Window, cfg.WindowBytes), tail: &tail{},
		parser: newAnswerParser(cfg.Stream, cfg.Conn.JSDomain), maxTail: maxTailIDs,
	}
}

// Begin starts a session: the window is empty, PostgreSQL sends everything again that is not confirmed. wake is called,
// from any goroutine, when there is something to Collect.
func (p *Publisher) Begin(origin outbox.Origin, wake func()) {
	p.endEpoch()
	p.suspect = 0
	p.window.reset()
	p.origin, p.originText, p.wake = origin, origin.String(), wake
	p.tail, p.absent = &tail{}, false
}

// Close ends the connection. Nothing may be called after it.
func (p *Publisher) Close() {
	p.endEpoch()
	p.drop(p.link)
	p.closing.Wait()
}

// Idle ends the session's epoch, if one runs. The connection stays for the next session.
func (p *Publisher) Idle() { p.endEpoch() }

// drop closes a connection beside the loop: Close waits for a write that hangs.
func (p *Publisher) drop(l *link) {
	if l != nil {
		p.closing.Go(l.nc.Close)
	}
}

func (p *Publisher) endEpoch() {
	if p.epoch != nil {
		p.epoch.end()
		p.ended, p.epoch = p.epoch, nil
	}
}

// Full reports whether no event may be read until some are stored.
func (p *Publisher) Full() bool { return p.window.full() }

// Next returns where the next event is to be decoded. Admit makes it part of the window.
func (p *Publisher) Next() *outbox.Event { return &p.window.next().event }

// Read and Stored return how many events of the session were read, and up to which one all are stored.
func (p *Publisher) Read() uint64 { return p.window.read }

// Stored returns the largest n such that the session's events 1..n are stored, or need not be.
func (p *Publisher) Stored() uint64 { return p.window.stored }

// Waiting returns how many events are read and not stored, and their bytes.
func (p *Publisher) Waiting() (events, bytes int) {
	return int(p.window.read - p.window.stored), p.window.bytes
}

// Oldest returns the oldest event that is not stored, or nil.
func (p *Publisher) Oldest() *outbox.Event {
	if p.window.read == p.window.stored {
		return nil
	}
	return &p.window.at(p.window.stored + 1).event
}

// Flight returns how many events are sent and not acked.
func (p *Publisher) Flight() int {
	if p.epoch == nil {
		return 0
	}
	return int(p.epoch.sent - p.epoch.counted)
}

// Publishing reports whether an epoch runs.
func (p *Publisher) Publishing() bool { return p.epoch != nil }

// Counts returns what happened so far.
func (p *Publisher) Counts() Counts { return p.counts }

// Admit takes the event of Next into the window.
func (p *Publisher) Admit() {
	s := p.window.admit()
	ev := &s.event
	switch {
	case p.tail.take(ev.ID):
		p.found(s, ev.Position)
	case len(p.cfg.Skip) > 0 && p.cfg.Skip[outbox.FormatPosition(p.origin, ev.Position)]:
		s.done = true
		p.counts.Dropped++
		p.log.Error("event skipped as told: it will not be in the stream", "event_id", ev.ID, "subject", ev.Subject,
			"position", outbox.FormatPosition(p.origin, ev.Position))
	case p.tail.next != 0:
		s.unknown = true
	default:
		p.absent = true
	}
	if len(p.tail.ids) > 0 && p.tail.next == 0 && ev.Position.Compare(p.tail.last) > 0 {
		p.tail.ids = nil // PostgreSQL has sent all that it will send again
	}
}

// found notes that an event of the window was read back from the stream.
func (p *Publisher) found(s *slot, at outbox.Position) {
	s.done = true
	p.counts.Skipped++
	if p.absent {
		p.counts.Reorders++
		p.log.Error("order broken: an event is in the stream and an earlier one is not", "event_id", s.event.ID,
			"position", outbox.FormatPosition(p.origin, at))
	}
}

// Publish sends what may be sent. It returns a *outbox.PoisonError for an event that can never be stored: the ones before
// it are on their way, none after it is sent. more reports that the tail must be read on before anything else is sent.
func (p *Publisher) Publish(now time.Time) (more bool, err error) {
	w, e := p.window, p.epoch
	if e == nil {
		return false, nil
	}
	defer p.pass()
	for w.sent < w.read && e.failed.Load() == nil {
		s := w.at(w.sent + 1)
		switch {
		case s.unknown:
			return true, nil
		case s.done:
			w.sent++
			continue
		case !e.room():
			return false, nil
		}
		if err := s.event.Check(p.limits); err != nil {
			return false, err
		}
		if e.sent == e.counted {
			p.progress = now
		}
		if err := e.send(&s.event); err != nil {
			var failure *EpochError
			if errors.As(err, &failure) {
				e.link.dead.Store(true) // some of its bytes may be on the way
				e.fail(failure)
				return false, nil
			}
			return false, err
		}
		w.sent++
	}
	return false, nil
}

// pass takes events out of the window that need no answer and wait for none before them.
func (p *Publisher) pass() {
	w := p.window
	for w.stored < w.sent && w.at(w.stored+1).done {
		w.pop()
	}
}

// passFound takes the oldest events out of the window that an epoch need not send, so that nothing waits any more if they
// are all.
func (p *Publisher) passFound() {
	w := p.window
	for w.sent < w.read {
		if s := w.at(w.sent + 1); !s.done || s.unknown {
			break
		}
		w.sent++
	}
	p.pass()
}

// Collect takes the answers that have come in. An *EpochError tells, once, that the epoch has ended; a Resume is needed
// then.
func (p *Publisher) Collect(now time.Time) error {
	e := p.epoch
	if e == nil {
		return nil
	}
	if acked := e.acked.Load(); acked > e.counted {
		p.progress = now
		p.counts.Published += acked - e.counted
		for ; e.counted < acked; e.counted++ {
			p.pass()
			if e.counted+1 == acked {
				p.anchor = anchor{seq: e.base + acked, key: keyOf(p.window.at(p.window.stored + 1).event.ID)}
			}
			p.window.pop()
		}
		p.pass()
		p.last = e.base + acked
		p.acked = max(p.acked, p.last)
	}
	if e.sent > e.counted && now.Sub(p.progress) >= p.cfg.AckTimeout {
		e.fail(&EpochError{Reason: ReasonTimeout, Text: fmt.Sprintf("no answer within %s", p.cfg.AckTimeout)})
	}
	failure := e.failed.Load()
	if failure == nil {
		return nil
	}
	report := *failure
	if p.suspect = p.oldestSent(); p.suspect != 0 {
		ev := &p.window.at(p.suspect).event
		report.Subject, report.EventID = ev.Subject, ev.ID
	}
	p.endEpoch()
	return &report
}

// oldestSent returns the ordinal of the oldest event in flight, 0 if there is none.
func (p *Publisher) oldestSent() uint64 {
	for i := p.window.stored + 1; i <= p.window.sent; i++ {
		if !p.window.at(i).done {
			return i
		}
	}
	return 0
}

// WakeWhen arms the wake-up for the next answer that lets the loop go on: all that is sent is stored, or a quarter of
// what is in flight. It reports false if there is something to collect already.
func (p *Publisher) WakeWhen() bool {
	e := p.epoch
	if e == nil {
		return true
	}
	at := e.sent
	if flight := e.sent - e.counted; p.window.sent < p.window.read || p.window.full() {
		at = e.counted + max(1, flight/4)
	}
	if e.sent > e.counted {
		e.wakeAt.Store(at)
	}
	return (e.sent == e.counted || e.acked.Load() < at) && e.failed.Load() == nil
}

// AckDeadline returns when the present epoch counts as failed if nothing is acked, or the zero time.
func (p *Publisher) AckDeadline() time.Time {
	if e := p.epoch; e != nil && e.sent > e.counted {
		return p.progress.Add(p.cfg.AckTimeout)
	}
	return time.Time{}
}

// Need says what a Resume is for.
type Need uint8

// The needs.
const (
	NeedSession Need = iota // the first epoch of a session: read the whole tail
	NeedEpoch               // the epoch has ended: read what it may have stored
	NeedTail                // Publish has asked for more of a tail that is too long to be held
)

// Resume prepares the start of the next epoch. confirmed is the slot's confirmed LSN, read after the slot was held.
func (p *Publisher) Resume(need Need, confirmed pglogrepl.LSN) *Resume {
	p.endEpoch() // NeedTail: nothing of it is in flight
	r := &Resume{
		cfg: p.cfg, origin: p.origin, session: need == NeedSession, advance: need == NeedTail, confirmed: confirmed,
		ended: p.ended, link: p.link, from: p.last + 1, acked: p.acked, anchor: p.anchor, waiting: map[key]uint64{}, closing: &p.closing,
		maxTail: p.maxTail,
	}
	if r.advance {
		r.from = p.tail.next
	}
	for i := p.window.stored + 1; i <= p.window.read; i++ {
		if s := p.window.at(i); !s.done {
			r.waiting[keyOf(s.event.ID)] = i
		}
	}
	return r
}

// Regressed takes note of a *RegressedError: what was acked beyond the stream's end no longer counts.
func (p *Publisher) Regressed(err *RegressedError) {
	p.acked, p.last, p.anchor = err.Last, err.Last, anchor{}
}

// Discard gives up what Run found: the session it was for has ended.
func (p *Publisher) Discard(res *Resumed) { p.adopt(res.link) }

func (p *Publisher) adopt(l *link) {
	if l != p.link {
		p.drop(p.link)
		p.link = l
	}
}

// Apply begins an epoch with what Run found. The window may have grown since the Resume was made. An *EpochError means
// that it could not begin.
func (p *Publisher) Apply(r *Resume, res *Resumed) error {
	p.adopt(res.link)
	p.anchor = res.anchor
	p.counts.Foreign += res.tail.foreign
	if r.session || r.advance {
		p.tail = res.tail
	} else {
		p.tail.merge(res.tail)
	}
	p.compare(r, res)
	p.verdict()
	if err := p.beginEpoch(res.stream); err != nil {
		return err
	}
	p.passFound()
	p.log.Debug("epoch begins", "last_sequence", res.stream.LastSeq, "tail", len(p.tail.ids), "found", len(res.found))
	return nil
}

// compare marks the events of the window that were found in the stream.
func (p *Publisher) compare(r *Resume, res *Resumed) {
	w := p.window
	p.absent = false
	for i := w.stored + 1; i <= w.read; i++ {
		s := w.at(i)
		if s.done {
			continue
		}
		_, compared := r.waiting[keyOf(s.event.ID)]
		at, found := res.found[i]
		switch {
		case found || !compared && p.tail.take(s.event.ID):
			if !found {
				at = s.event.Position
			}
			s.unknown = false
			p.found(s, at)
		case !compared && p.tail.next != 0:
			s.unknown = true
		default:
			s.unknown, p.absent = false, true
		}
	}
}

func (p *Publisher) beginEpoch(stream Stream) error {
	epoch, err := newEpoch(p.link, stream.LastSeq, p.originText, p.parser, p.wake)
	if err != nil {
		p.link.dead.Store(true)
		return &EpochError{Reason: ReasonConnection, Text: err.Error(), cause: err}
	}
	p.epoch, p.ended, p.suspect = epoch, nil, 0
	p.last, p.acked = stream.LastSeq, max(p.acked, stream.LastSeq)
	p.counts.Epochs++
	p.window.sent = p.window.stored
	p.limits = outbox.Limits{MessageBytes: int(p.link.nc.MaxPayload()), OriginBytes: len(p.originText)}
	if size := int(stream.MaxMsgSize); size > 0 {
		p.limits.MessageBytes = min(p.limits.MessageBytes, size)
	}
	return nil
}

// verdict draws what the end of the last epoch says of one event: only if the answer belongs to it for certain.
func (p *Publisher) verdict() {
	if p.suspect == 0 || !p.ended.alone() {
		return
	}
	s, failure := p.window.at(p.suspect), p.ended.failed.Load()
	switch {
	case s.done: // it was found in the stream after all
	case failure.Reason == ReasonDuplicate:
		s.done = true
		p.counts.Duplicates++
		p.log.Warn("the stream has this event's id from elsewhere: it counts as stored", "event_id", s.event.ID,
			"position", outbox.FormatPosition(p.origin, s.event.Position), "sequence", failure.original)
	case failure.Reason == ReasonRefused && failure.poison():
		s.event.Refuse(fmt.Sprintf("the stream refuses it: %s (%d); its payload has %d bytes", failure.Text, failure.Code, len(s.event.Payload)))
	}
}
