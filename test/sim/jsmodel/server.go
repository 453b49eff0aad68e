// Package jsmodel is a model of a NATS server with one JetStream stream, as a relay meets it: it speaks the client protocol
// over connections of simnet and those requests of the JetStream API that a relay makes.
package jsmodel

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-1cfd9858/relay/test/sim/history"
	"github.com/seed-1cfd9858/relay/test/sim/simnet"
)

// Config says what a server and its stream are like.
type Config struct {
	Stream     string
	Prefix     string        // of the subjects that the stream takes: "outbox."
	Replicated bool          // a message counts when a quorum has it: its ack comes later, an error at once
	Window     time.Duration // duplicate window
	Refused    string        // a subject whose messages are always too large
	MaxMsgs    int           // messages that it takes at most; 0: no limit
	AckDelay   time.Duration // at most so long until an answer goes
	Quorum     time.Duration // at most so long until a quorum has a message
}

// Observer is told what happens to the stream, with the server's lock held.
type Observer interface {
	Stored(m Message)
	// Knows says that a client has learned where the stream ends: it goes on from an answer to that question.
	Knows(client string)
	Truncated(last int, crash bool)
}

// Server is the model. Its methods are safe for concurrent use.
type Server struct {
	Proc *simnet.Process
	cfg  Config
	obs  Observer
	log  *history.Log

	mu        sync.Mutex
	rng       *rand.Rand
	exists    bool
	leader    bool
	term      int // of the leader: proposals of an earlier one are gone
	created   time.Time
	messages  []stored // by sequence - 1
	ids       map[string]stored
	pending   []proposal
	consumers map[string]*consumer

	faults Faults
}

// Message is a message as the stream has it.
type Message struct {
	ID, Position, Subject, Body string
	Aggregate, Sequence, Trace  string // headers
}

type stored struct {
	message
	seq int
	at  time.Time
}

type proposal struct {
	client *client
	message
}

// Faults are what happens to the next messages. Each counts down, apart from Full and NoConsumers.
type Faults struct {
	Full        bool          // the stream takes no more
	NoConsumers bool          // no consumer can be made
	Stall       bool          // consumers deliver nothing
	DropAcks    int           // acks that are lost
	Swallow     int           // messages that are neither stored nor answered
	Refuse      int           // messages that are refused
	Code        int           // with this err_code
	Late        time.Duration // the next answer waits so long, and those after it
	Mute        int           // requests of the API that get no answer
}

// Quiet is an Observer that wants to know nothing.
type Quiet struct{}

// Stored does nothing.
func (Quiet) Stored(Message) {}

// Truncated does nothing.
func (Quiet) Truncated(int, bool) {}

// Knows does nothing.
func (Quiet) Knows(string) {}

// New returns a running server with an empty stream.
func New(cfg Config, obs Observer, log *history.Log, rng *rand.Rand) *Server {
	s := &Server{
		cfg: cfg, obs: obs, log: log, rng: rng, exists: true, leader: true, created: time.Now(),
		ids: map[string]stored{}, consumers: map[string]*consumer{},
	}
	s.Proc = simnet.NewProcess("nats", s.serve)
	return s
}

// Fault changes what happens to the next messages.
func (s *Server) Fault(change func(*Faults)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.faults)
}

// Last returns the last sequence.
func (s *Server) Last() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages)
}

// publish takes a message from a client.
func (s *Server) publish(c *client, m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.told && !strings.HasPrefix(m.subject, "$JS.API.STREAM.INFO.") {
		c.told = false
		s.obs.Knows(c.name)
	}
	switch {
	case strings.HasPrefix(m.subject, "$JS.API."):
		s.api(c, m)
	case !s.exists, !s.leader, !strings.HasPrefix(m.subject, s.cfg.Prefix):
		c.deliver(s.delay(), m.reply, m.reply, message{header: []byte("NATS/1.0 503\r\n\r\n")})
	case s.faults.Swallow > 0:
		s.faults.Swallow--
		s.log.Add("nats", "loses %s of %s", m.head("Nats-Msg-Id"), c.name)
	default:
		s.ingest(c, m)
	}
}

func (s *Server) delay() time.Duration {
	d := s.faults.Late
	s.faults.Late = 0
	if s.cfg.AckDelay > 0 {
		d += time.Duration(s.rng.Int64N(int64(s.cfg.AckDelay)))
	}
	return d
}

// refusal is an answer with an error.
type refusal struct {
	code, errCode int
	text          string
}

// ingest stores or refuses a message of the stream.
func (s *Server) ingest(c *client, m message) {
	id := m.head("Nats-Msg-Id")
	if s.faults.Refuse > 0 {
		s.faults.Refuse--
		s.refuse(c, m, refusals[s.faults.Code])
		return
	}
	if s.cfg.Refused != "" && m.subject == s.cfg.Refused {
		s.refuse(c, m, &refusal{400, 10054, "message size exceeds maximum allowed"})
		return
	}
	if want := m.head("Nats-Expected-Stream"); want != "" && want != s.cfg.Stream {
		s.refuse(c, m, &refusal{400, 10060, "expected stream does not match"})
		return
	}
	// One server looks at the sequence first, a replicated stream at the id.
	checks := []func(*client, message, string) bool{s.sequence, s.duplicate}
	if s.cfg.Replicated {
		checks[0], checks[1] = checks[1], checks[0]
	}
	for _, check := range checks {
		if check(c, m, id) {
			return
		}
	}
	if n := s.cfg.MaxMsgs; s.faults.Full || n > 0 && len(s.messages)+len(s.pending) >= n {
		s.refuse(c, m, refusals[10077])
		return
	}
	if !s.cfg.Replicated {
		s.store(m)
		s.ack(c, m, fmt.Sprintf(`{"stream":%q,"seq":%d}`, s.cfg.Stream, len(s.messages)))
		return
	}
	s.pending = append(s.pending, proposal{client: c, message: m})
	term := s.term
	time.AfterFunc(time.Duration(s.rng.Int64N(int64(s.cfg.Quorum)+1)), func() { s.commit(term) })
}

var refusals = map[int]*refusal{
	10077: {503, 10077, "maximum messages exceeded"},
	10167: {429, 10167, "too many requests"},
	10023: {503, 10023, "insufficient resources"},
	10071: {400, 10071, "wrong last sequence: 0"},
}

// Codes are the err_codes that Faults.Code may have.
var Codes = []int{10077, 10167, 10023}

func (s *Server) refuse(c *client, m message, r *refusal) {
	s.log.Add("nats", "refuses %s of %s at %s: %s", m.head("Nats-Msg-Id"), c.name, m.head("Nats-Expected-Last-Sequence"), r.text)
	s.ack(c, m, fmt.Sprintf(`{"error":{"code":%d,"err_code":%d,"description":%q},"stream":%q,"seq":0}`, r.code, r.errCode, r.text, s.cfg.Stream))
}

func (s *Server) sequence(c *client, m message, _ string) bool {
	want := m.head("Nats-Expected-Last-Sequence")
	n, err := strconv.Atoi(want)
	last := len(s.messages) + len(s.pending)
	if want == "" || err == nil && n == last {
		return false
	}
	s.refuse(c, m, &refusal{400, 10071, fmt.Sprintf("wrong last sequence: %d", last)})
	return true
}

func (s *Server) duplicate(c *client, m message, id string) bool {
	if id == "" {
		return false
	}
	if old, ok := s.ids[id]; ok && time.Since(old.at) < s.cfg.Window {
		s.log.Add("nats", "has %s of %s already, at %d", id, c.name, old.seq)
		s.ack(c, m, fmt.Sprintf(`{"stream":%q,"seq":%d,"duplicate":true}`, s.cfg.Stream, old.seq))
		return true
	}
	for _, p := range s.pending {
		if p.head("Nats-Msg-Id") == id {
			s.refuse(c, m, &refusal{409, 10158, "duplicate message id is in process"})
			return true
		}
	}
	return false
}

// commit is when a quorum has the oldest proposal.
func (s *Server) commit(term int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term != s.term || len(s.pending) == 0 {
		return
	}
	p := s.pending[0]
	s.pending = s.pending[1:]
	s.store(p.message)
	s.ack(p.client, p.message, fmt.Sprintf(`{"stream":%q,"seq":%d}`, s.cfg.Stream, len(s.messages)))
}

func (s *Server) store(m message) {
	one := stored{message: m, seq: len(s.messages) + 1, at: time.Now()}
	s.messages = append(s.messages, one)
	id := m.head("Nats-Msg-Id")
	if id != "" {
		s.ids[id] = one
	}
	s.log.Add("nats", "stores %d: %s", one.seq, id)
	s.obs.Stored(Message{
		ID: id, Position: m.head("Relay-Position"), Subject: m.subject, Body: string(m.data),
		Aggregate: m.head("Relay-Aggregate-Id"), Sequence: m.head("Relay-Sequence"), Trace: m.head("Trace"),
	})
}

func (s *Server) ack(c *client, m message, answer string) {
	delay := s.delay()
	if s.faults.DropAcks > 0 {
		s.faults.DropAcks--
		s.log.Add("nats", "the answer to %s is lost", m.head("Nats-Msg-Id"))
		return
	}
	if m.reply != "" {
		c.deliver(delay, m.reply, m.reply, message{data: []byte(answer)})
	}
}
