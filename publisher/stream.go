package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Errors of a question about a stream. They are wrapped with what the server said.
var (
	ErrStreamMissing     = errors.New("the stream does not exist")
	ErrNoJetStream       = errors.New("JetStream is not enabled here")
	ErrNoPermission      = errors.New("this user may not ask about the stream")
	ErrStreamUnavailable = errors.New("the stream has no leader at the moment")
)

// A cluster between two leaders drops a question without a word, and whoever leads next never sees it. So one that changes
// nothing is asked again, and is given twice as long each time: a server that is only slow is heard, too.
const (
	apiTimeout = 7 * time.Second // bounds a question, with all its tries, when ctx does not do so earlier
	firstTry   = time.Second
)

// BatchAPILevel is the JetStream API level from which a stream can take fast-ingest batches (NATS 2.14).
const BatchAPILevel = 4

// Stream is what the relay knows of a stream: its configuration and its state at the moment of asking, both as the
// stream's leader told. Limits that are not set are -1 or 0, as the server has them.
type Stream struct {
	Name     string
	Subjects []string

	Storage         string // file or memory
	Retention       string // limits, interest or workqueue
	Discard         string // old or new
	PersistMode     string // "", default or async
	Replicas        int
	DuplicateWindow time.Duration

	MaxMsgs              int64
	MaxBytes             int64
	MaxAge               time.Duration
	MaxMsgSize           int64 // bytes of headers and payload
	MaxMsgsPerSubject    int64
	DiscardNewPerSubject bool

	NoAck            bool // the server stores without answering
	Sealed           bool
	Mirror           bool
	Sources          bool
	SubjectTransform bool
	AllowBatched     bool
	AllowDirect      bool
	AllowMsgTTL      bool
	AllowMsgCounter  bool
	AllowRollup      bool
	DenyDelete       bool
	DenyPurge        bool

	APILevel int       // of the server that answered; 0 = before levels were told (2.11)
	Created  time.Time // changes when a stream is deleted and made again
	FirstSeq uint64
	LastSeq  uint64
	Messages uint64
	Bytes    uint64
	LastTime time.Time // when the last message was stored; zero if none ever was
	Leader   string    // name of the leading server; "" on a server without a cluster
}

// InspectStream asks the stream's leader. domain is the JetStream domain, "" for the server's own. The error wraps
// ErrStreamMissing, ErrNoJetStream, ErrNoPermission or ErrStreamUnavailable where the server's answer is one of these.
func InspectStream(ctx context.Context, nc *nats.Conn, domain, name string) (Stream, error) {
	var info streamInfo
	if err := apiRequest(ctx, nc, domain, "STREAM.INFO."+name, nil, &info); err != nil {
		return Stream{}, fmt.Errorf("ask for stream %q: %w", name, err)
	}
	return info.stream(), nil
}

// APIError is JetStream's refusal of a request.
type APIError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *APIError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.ErrCode) }

// Is says which of the package's errors the refusal is.
func (e *APIError) Is(target error) bool {
	switch e.ErrCode {
	case 10059:
		return target == ErrStreamMissing
	case 10039, 10076:
		return target == ErrNoJetStream
	case 10008, 10009, 10118, 10194:
		return target == ErrStreamUnavailable
	}
	return false
}

// apiRequest sends one JetStream API request and decodes its answer into out, a pointer to a struct.
func apiRequest(ctx context.Context, nc *nats.Conn, domain, subject string, request, out any) error {
	prefix := "$JS.API."
	if domain != "" {
		prefix = "$JS." + domain + ".API."
	}
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	answer, err := ask(ctx, nc, prefix+subject, body, onlyReads(subject))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: nothing answers %s", ErrNoJetStream, prefix+subject)
	case errors.Is(err, ErrNoPermission):
		return err
	case err != nil:
		return fmt.Errorf("no answer to %s: %w", prefix+subject, err)
	}
	var refusal struct {
		Error *APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &refusal); err != nil {
		return fmt.Errorf("answer to %s: %w", prefix+subject, err)
	}
	if refusal.Error != nil {
		return refusal.Error
	}
	if err := json.Unmarshal(answer.Data, out); err != nil {
		return fmt.Errorf("answer to %s: %w", prefix+subject, err)
	}
	return nil
}

func onlyReads(subject string) bool {
	return strings.HasPrefix(subject, "STREAM.INFO.") || strings.HasPrefix(subject, "STREAM.MSG.GET.")
}

// ask waits for the answer to a request. Each try has a reply subject of its own, so an answer to an earlier one is not
// taken. A refused request gets no answer: the refusal arrives beside it, as a new last error of the connection.
func ask(ctx context.Context, nc *nats.Conn, subject string, body []byte, again bool) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	before := nc.LastError()
	for patience := firstTry; ; patience *= 2 {
		if !again {
			patience = apiTimeout
		}
		try, cancel := context.WithTimeout(ctx, patience)
		answer, err := nc.RequestWithContext(try, subject, body)
		cancel()
		if refusal := nc.LastError(); err != nil && refusal != before && errors.Is(refusal, nats.ErrPermissionViolation) { //nolint:errorlint // the same one, not one like it
			return nil, fmt.Errorf("%w: %w", ErrNoPermission, refusal)
		}
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return answer, err
		}
	}
}

// streamInfo is the server's answer. Enumerations stay text, so that a value of a later server is no error.
type streamInfo struct {
	Config  streamConfig `json:"config"`
	Created time.Time    `json:"created"`
	State   struct {
		Messages uint64    `json:"messages"`
		Bytes    uint64    `json:"bytes"`
		FirstSeq uint64    `json:"first_seq"`
		LastSeq  uint64    `json:"last_seq"`
		LastTime time.Time `json:"last_ts"`
	} `json:"state"`
	Cluster *struct {
		Leader string `json:"leader"`
	} `json:"cluster"`
}

type streamConfig struct {
	Name              string            `json:"name"`
	Description       string            `json:"description,omitempty"`
	Subjects          []string          `json:"subjects,omitempty"`
	Retention         string            `json:"retention"`
	MaxConsumers      int               `json:"max_consumers"`
	MaxMsgs           int64             `json:"max_msgs"`
	MaxBytes          int64             `json:"max_bytes"`
	MaxAge            time.Duration     `json:"max_age"`
	MaxMsgsPerSubject int64             `json:"max_msgs_per_subject"`
	MaxMsgSize        int64             `json:"max_msg_size"`
	Discard           string            `json:"discard"`
	DiscardNewPer     bool              `json:"discard_new_per_subject,omitempty"`
	Storage           string            `json:"storage"`
	Replicas          int               `json:"num_replicas"`
	NoAck             bool              `json:"no_ack,omitempty"`
	DuplicateWindow   time.Duration     `json:"duplicate_window,omitempty"`
	Mirror            json.RawMessage   `json:"mirror,omitempty"`
	Sources           []json.RawMessage `json:"sources,omitempty"`
	SubjectTransform  json.RawMessage   `json:"subject_transform,omitempty"`
	Sealed            bool              `json:"sealed,omitempty"`
	DenyDelete        bool              `json:"deny_delete,omitempty"`
	DenyPurge         bool              `json:"deny_purge,omitempty"`
	AllowRollup       bool              `json:"allow_rollup_hdrs,omitempty"`
	AllowDirect       bool              `json:"allow_direct"`
	AllowMsgTTL       bool              `json:"allow_msg_ttl,omitempty"`
	AllowMsgCounter   bool              `json:"allow_msg_counter,omitempty"`
	AllowBatched      bool              `json:"allow_batched,omitempty"`
	PersistMode       string            `json:"persist_mode,omitempty"`
	Metadata          map[string]string `json:"metadata,omitempty"`
}

func (i streamInfo) stream() Stream {
	c := i.Config
	s := Stream{
		Name: c.Name, Subjects: c.Subjects,
		Storage: c.Storage, Retention: c.Retention, Discard: c.Discard, PersistMode: c.PersistMode,
		Replicas: c.Replicas, DuplicateWindow: c.DuplicateWindow,
		MaxMsgs: c.MaxMsgs, MaxBytes: c.MaxBytes, MaxAge: c.MaxAge, MaxMsgSize: c.MaxMsgSize,
		MaxMsgsPerSubject: c.MaxMsgsPerSubject, DiscardNewPerSubject: c.DiscardNewPer,
		NoAck: c.NoAck, Sealed: c.Sealed, Mirror: present(c.Mirror), Sources: len(c.Sources) > 0,
		SubjectTransform: present(c.SubjectTransform), AllowBatched: c.AllowBatched, AllowDirect: c.AllowDirect,
		AllowMsgTTL: c.AllowMsgTTL, AllowMsgCounter: c.AllowMsgCounter, AllowRollup: c.AllowRollup,
		DenyDelete: c.DenyDelete, DenyPurge: c.DenyPurge,
		Created: i.Created, FirstSeq: i.State.FirstSeq, LastSeq: i.State.LastSeq,
		Messages: i.State.Messages, Bytes: i.State.Bytes, LastTime: i.State.LastTime,
	}
	s.APILevel, _ = strconv.Atoi(c.Metadata["_nats.level"]) // absent before 2.11: level 0
	if i.Cluster != nil {
		s.Leader = i.Cluster.Leader
	}
	return s
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
