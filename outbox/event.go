package outbox

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Headers of a message. Names that start with Nats- or Relay- are never taken from a row.
const (
	HeaderMsgID       = "Nats-Msg-Id"
	HeaderPosition    = "Relay-Position"
	HeaderCommittedAt = "Relay-Committed-At"
	HeaderAggregateID = "Relay-Aggregate-Id"
	HeaderSequence    = "Relay-Sequence"
)

// MaxHeaderBytes is the server's bound on a message's whole header block (nats-server: error 10097).
const MaxHeaderBytes = 65535

// EventOverhead is what an event is taken to need besides its payload and headers, in bytes.
const EventOverhead = 200

// Event is one outbox row, ready to become a message. Its strings and bytes are its own: they stay valid for as long as
// they are referenced, whatever is decoded next.
type Event struct {
	Position   Position
	CommitTime time.Time // of the transaction, by the server's clock

	ID          string // Nats-Msg-Id; a function of the row alone (I6)
	Subject     string
	AggregateID string // "" when NULL or absent
	Sequence    string // decimal, "" when NULL or absent
	Headers     []Header
	Payload     []byte

	fault       string // why it can never be stored, "" when it can
	headerBytes int    // of Headers, on the wire
}

// Header is one header line of a row.
type Header struct {
	Name, Value string
}

// Size is what the event counts for in the window, in bytes.
func (e *Event) Size() int { return len(e.Payload) + e.headerBytes + len(e.ID) + EventOverhead }

// Limits are the bounds of the servers on one message. Zero means unknown, and no bound.
type Limits struct {
	// MessageBytes bounds headers plus payload: the smaller of the server's max_payload and the stream's max_msg_size.
	MessageBytes int
	// OriginBytes is the length of the origin in Relay-Position.
	OriginBytes int
}

// PoisonError says that an event can never be stored, whatever the broker does.
type PoisonError struct {
	ID       string
	Subject  string
	Position Position
	Reason   string
}

func (e *PoisonError) Error() string {
	return fmt.Sprintf("event id=%q subject=%q at %s can never be stored: %s", e.ID, e.Subject, e.Position, e.Reason)
}

// Poison returns the error of an event that was refused for reason.
func (e *Event) Poison(reason string) *PoisonError {
	return &PoisonError{ID: e.ID, Subject: e.Subject, Position: e.Position, Reason: reason}
}

// Refuse makes the event one that can never be stored, for a reason that only the broker knew.
func (e *Event) Refuse(reason string) { e.fault = reason }

// judge applies the rules for all but sizes, which depend on the broker, and takes the headers from their column. The first
// fault counts.
func (e *Event) judge(subjectFault string, headers []byte) {
	for _, fault := range [...]string{
		idFault(e.ID), subjectFault, valueFault("its aggregate id", e.AggregateID), valueFault("its sequence", e.Sequence),
	} {
		if fault != "" && e.fault == "" {
			e.fault = fault
		}
	}
	if headers == nil {
		return
	}
	parsed, fault := parseHeaders(headers)
	if e.fault == "" {
		e.fault = fault
	}
	e.Headers = parsed
	for _, h := range parsed {
		e.headerBytes += len(h.Name) + len(h.Value) + len(": \r\n")
	}
}

// Check returns a *PoisonError if the event can never be stored within the limits. It is the one set of rules: the relay
// asks it before the wire, a writer before the commit.
func (e *Event) Check(l Limits) error {
	if e.fault != "" {
		return e.Poison(e.fault)
	}
	header := e.wireHeaderBytes(l.OriginBytes)
	if header > MaxHeaderBytes {
		return e.Poison(fmt.Sprintf("its headers have up to %d bytes, over the server's limit of %d", header, MaxHeaderBytes))
	}
	if size := header + len(e.Payload); l.MessageBytes > 0 && size > l.MessageBytes {
		return e.Poison(fmt.Sprintf("headers and payload have up to %d bytes, over the limit of %d (the smaller of the server's "+
			"max_payload and the stream's max_msg_size)", size, l.MessageBytes))
	}
	return nil
}

// wireHeaderBytes is an upper bound of the message's header block: numbers that are only known later count with the
// most digits that they can have.
func (e *Event) wireHeaderBytes(originBytes int) int {
	const (
		frame    = len("NATS/1.0\r\n") + len("\r\n")
		line     = len(": ") + len("\r\n")
		expected = line + len("Nats-Expected-Last-Sequence") + 20
		position = line + len(HeaderPosition) + len(" FFFFFFFF/FFFFFFFF 4294967295")
		moment   = line + len(HeaderCommittedAt) + len("2006-01-02T15:04:05.999999999Z")
	)
	n := frame + expected + position + originBytes + moment + line + len(HeaderMsgID) + len(e.ID) + e.headerBytes
	if e.AggregateID != "" {
		n += line + len(HeaderAggregateID) + len(e.AggregateID)
	}
	if e.Sequence != "" {
		n += line + len(HeaderSequence) + len(e.Sequence)
	}
	return n
}

// idFault and its likes refuse what the client library would change on the way (it trims outer blanks and turns CR and LF
// into blanks): a changed id would be another event.
func idFault(id string) string {
	if id == "" {
		return "its id is NULL or empty"
	}
	return valueFault("its id", id)
}

func valueFault(what, v string) string {
	for i := 0; i < len(v); i++ {
		switch {
		case v[i] == '\r', v[i] == '\n':
			return what + " has a line break"
		case v[i] >= utf8.RuneSelf:
			if !utf8.ValidString(v) {
				return what + " is not UTF-8"
			}
		}
	}
	if v != "" && (blank(v[0]) || blank(v[len(v)-1])) {
		return what + " begins or ends with a blank"
	}
	return ""
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\v' || c == '\f' }

func headerNameFault(name string) string {
	if name == "" {
		return "it has a header without a name"
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; c <= ' ' || c >= 0x7f || c == ':' {
			return fmt.Sprintf("the header name %q has a byte that is not allowed", name)
		}
	}
	if hasPrefixFold(name, "Nats-") || hasPrefixFold(name, "Relay-") {
		return fmt.Sprintf("the header %q is reserved: names that start with Nats- or Relay- steer the stream", name)
	}
	return ""
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
