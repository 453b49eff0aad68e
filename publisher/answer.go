package publisher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/seed-1cfd9858/relay/outbox"
)

// Reason says why an epoch ended. The values are a closed list, fit for a metric's label.
type Reason string

// The reasons.
const (
	ReasonRefused      Reason = "refused"       // JetStream answered with an error
	ReasonNoResponders Reason = "no_responders" // no stream listens to the subject, or it has no leader
	ReasonDuplicate    Reason = "duplicate"     // the stream has the id already, from elsewhere
	ReasonSequence     Reason = "sequence"      // stored, at another place than predicted
	ReasonOtherStream  Reason = "other_stream"  // stored, in another stream
	ReasonAnswer       Reason = "answer"        // something answered that is not JetStream
	ReasonTimeout      Reason = "timeout"       // no answer in time
	ReasonConnection   Reason = "connection"    // the connection failed
	ReasonPermission   Reason = "permission"    // this user may not publish to the subject
)

// Reasons returns the whole list.
func Reasons() []Reason {
	return []Reason{
		ReasonRefused, ReasonNoResponders, ReasonDuplicate, ReasonSequence, ReasonOtherStream, ReasonAnswer, ReasonTimeout, ReasonConnection,
		ReasonPermission,
	}
}

// EpochError says how an epoch ended. What was sent and not answered may or may not be stored: the next epoch finds out.
type EpochError struct {
	Reason  Reason
	Code    int    // JetStream's err_code, 0 if it gave none
	Text    string // what the other side said
	Subject string // of the oldest event without an answer
	EventID string // its id

	original uint64 // ReasonDuplicate: the sequence of the message that has the id
	cause    error
}

func (e *EpochError) Error() string {
	s := e.Text
	if e.Subject != "" { // else nothing was in flight
		s = fmt.Sprintf("publish to %s: %s", e.Subject, e.Text)
	}
	if e.Code != 0 {
		s += fmt.Sprintf(" (%d)", e.Code)
	}
	return s
}

func (e *EpochError) Unwrap() error { return e.cause }

// JetStream error codes, https://github.com/nats-io/nats-server/blob/main/server/errors.json
const (
	codeMessageTooLarge = 10054 // over the stream's max_msg_size
	codeHeaderTooLarge  = 10097
	codeStoreFailed     = 10077 // many things, one of them a record over the store's own limit
)

// poison reports whether the refusal means that this message can never be stored.
func (e *EpochError) poison() bool {
	switch e.Code {
	case codeMessageTooLarge, codeHeaderTooLarge:
		return true
	case codeStoreFailed: // the one place where the server gives no code of its own
		return e.Text == "message too large"
	}
	return false
}

// answerParser reads what comes back for a message. Nearly all answers are one prefix and a number.
type answerParser struct {
	stream string
	prefix []byte
}

func newAnswerParser(stream, domain string) *answerParser {
	prefix := fmt.Sprintf(`{"stream":%q,"seq":`, stream)
	if domain != "" {
		prefix = fmt.Sprintf(`{"stream":%q,"domain":%q,"seq":`, stream, domain)
	}
	return &answerParser{stream: stream, prefix: []byte(prefix)}
}

// parse returns the sequence of a plain acknowledgement, or what else the answer is.
func (p *answerParser) parse(m *nats.Msg) (uint64, *EpochError) {
	if rest, ok := bytes.CutPrefix(m.Data, p.prefix); ok {
		const digits = 19 // so many fit, whichever they are; the decoder below takes a longer number, or refuses it
		var seq uint64
		i := 0
		for ; i < min(len(rest), digits) && rest[i] >= '0' && rest[i] <= '9'; i++ {
			seq = seq*10 + uint64(rest[i]-'0')
		}
		if i > 0 && i+1 == len(rest) && rest[i] == '}' {
			return seq, nil
		}
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return 0, &EpochError{Reason: ReasonNoResponders, Text: "no stream listens to this subject, or it has no leader at the moment"}
	}
	var answer struct {
		Stream    string    `json:"stream"`
		Seq       uint64    `json:"seq"`
		Duplicate bool      `json:"duplicate"`
		Error     *APIError `json:"error"`
	}
	err := json.Unmarshal(m.Data, &answer)
	switch {
	case err != nil || answer.Error == nil && answer.Stream == "":
		return 0, &EpochError{Reason: ReasonAnswer, Text: "something answered that is not JetStream", cause: err}
	case answer.Error != nil:
		return 0, &EpochError{Reason: ReasonRefused, Code: answer.Error.ErrCode, Text: answer.Error.Description, cause: answer.Error}
	case answer.Stream != p.stream:
		return 0, &EpochError{
			Reason: ReasonOtherStream,
			Text:   fmt.Sprintf("stream %s took it at sequence %d, not %s", answer.Stream, answer.Seq, p.stream),
		}
	case answer.Duplicate:
		return 0, &EpochError{
			Reason: ReasonDuplicate, original: answer.Seq,
			Text: fmt.Sprintf("the stream has an event with this id already, at sequence %d", answer.Seq),
		}
	}
	return answer.Seq, nil
}

// publishError gives an error of the client library its meaning: a *outbox.PoisonError or an *EpochError.
func publishError(err error, ev *outbox.Event) error {
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return ev.Poison(err.Error())
	}
	return &EpochError{Reason: ReasonConnection, Text: err.Error(), Subject: ev.Subject, EventID: ev.ID, cause: err}
}
