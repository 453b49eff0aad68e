package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-1cfd9858/relay/outbox"
)

// Levels of a Check.
const (
	LevelOK      = "ok"
	LevelWarn    = "warn"    // the relay keeps its promise, with a limit that the operator should know
	LevelFail    = "fail"    // it cannot
	LevelUnknown = "unknown" // it could not be looked at; the text says why
)

// Check is one precondition and how it came out.
type Check struct {
	Name  string // what was looked at; stable
	Level string
	Code  string // why it is not ok, from the closed list; "" if it is, or if it is not known
	Text  string // the evidence, or what is wrong
	Fix   string // the line to type, or what to do; "" if there is none
}

// Examination is everything that doctor asks NATS.
type Examination struct {
	Servers    string // where it was asked, without secrets
	StreamName string
	Template   string // of the subjects
	Domain     string
	Inboxes    string // filter of the subjects for answers

	ConnectErr    error // nothing else is known then
	ServerVersion string
	MaxPayload    int64 // bytes of headers and payload

	Account    *Account
	AccountErr error
	Stream     *Stream
	StreamErr  error
	User       *User // nil if the server did not tell
	UserErr    error
	Tail       *Tail // nil if it was not read
	TailErr    error
}

// Account is what JetStream allows the account, and what of it is used. Limits that are not set are -1 or 0.
type Account struct {
	Memory  int64 `json:"memory"`  // bytes
	Storage int64 `json:"storage"` // bytes
	Limits  struct {
		MaxMemory  int64 `json:"max_memory"`
		MaxStorage int64 `json:"max_storage"`
	} `json:"limits"`
	API struct {
		Level int `json:"level"`
	} `json:"api"`
}

// Tail is who wrote the last messages of the stream.
type Tail struct {
	Read      int    // messages
	Foreign   int    // of them, those that no relay of this slot wrote
	Last      uint64 // sequence of the last foreign one
	LastWrote string // what that one says of its origin, "" if nothing
}

// tailMessages bounds how many messages are read back, one request each.
const tailMessages = 20

// Examine looks at every precondition in NATS and changes nothing: it publishes to no subject of the stream, and makes no
// consumer. What fails is part of the result. An origin without a system is not known: then the tail is not read.
func Examine(ctx context.Context, cfg ConnConfig, stream string, template outbox.Template, origin outbox.Origin) Examination {
	prefix := cfg.InboxPrefix
	if prefix == "" {
		prefix = "_INBOX"
	}
	e := Examination{Servers: cfg.Servers(), StreamName: stream, Template: template.String(), Domain: cfg.JSDomain, Inboxes: prefix + ".>"}
	nc, err := Dial(ctx, cfg)
	if err != nil {
		e.ConnectErr = err
		return e
	}
	defer nc.Close()
	e.ServerVersion, e.MaxPayload = nc.ConnectedServerVersion(), nc.MaxPayload()
	if e.User, e.UserErr = askUser(ctx, nc); errors.Is(e.UserErr, ErrNoPermission) {
		e.StreamErr = e.UserErr // no question would be answered
		return e
	}
	e.Account, e.AccountErr = askAccount(ctx, nc, cfg.JSDomain)
	s, err := InspectStream(ctx, nc, cfg.JSDomain, stream)
	if err != nil {
		e.StreamErr = err
		return e
	}
	e.Stream = &s
	if origin.System != "" {
		r := &tailReader{nc: nc, domain: cfg.JSDomain, stream: s, origin: origin}
		e.Tail, e.TailErr = r.writers(ctx)
	}
	return e
}

func askAccount(ctx context.Context, nc *nats.Conn, domain string) (*Account, error) {
	ctx, cancel := context.WithTimeout(ctx, accountPatience)
	defer cancel()
	var account Account
	if err := apiRequest(ctx, nc, domain, "INFO", nil, &account); err != nil {
		return nil, err
	}
	return &account, nil
}

// writers reads the last messages by single requests: a consumer would be a change.
func (r *tailReader) writers(ctx context.Context) (*Tail, error) {
	from := max(r.stream.FirstSeq, 1)
	if r.stream.LastSeq >= from+tailMessages {
		from = r.stream.LastSeq - tailMessages + 1
	}
	t := &Tail{}
	_, err := r.scanSingly(ctx, from, func(seq uint64, h nats.Header) {
		t.Read++
		if _, _, own := r.own(h); own {
			return
		}
		t.Foreign, t.Last, t.LastWrote = t.Foreign+1, seq, ""
		if origin, _, err := outbox.ParsePosition(header(h, outbox.HeaderPosition)); err == nil {
			t.LastWrote = origin.String()
		}
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// User is what a server tells a user about itself.
type User struct {
	Name        string        `json:"user"`
	Account     string        `json:"account"`
	Expires     time.Duration `json:"expires"` // until the credentials end; 0: never
	Permissions *struct {
		Publish   subjectRule `json:"publish"`
		Subscribe subjectRule `json:"subscribe"`
	} `json:"permissions"` // nil: no restriction
}

// subjectRule allows subjects: no list allows all, and what is denied is denied whatever is allowed.
type subjectRule struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// allows says whether all subjects of pattern may be used, and whether some may.
func (r subjectRule) allows(pattern string) (all, some bool) {
	all = (len(r.Allow) == 0 || covered(r.Allow, pattern)) && !touched(r.Deny, pattern)
	some = (len(r.Allow) == 0 || touched(r.Allow, pattern)) && !covered(r.Deny, pattern)
	return all, some
}

// How long the server may take to tell: it does so at once, or never.
const (
	userPatience    = time.Second
	accountPatience = 3 * time.Second
)

var errUserHidden = errors.New("this user may not ask the server about itself ($SYS.REQ.USER.INFO)")

// askUser asks the server what it lets this user do. It needs the right to ask, and a server with a system account. An
// ErrNoPermission says that the user can get no answer to anything.
func askUser(ctx context.Context, nc *nats.Conn) (*User, error) {
	ctx, cancel := context.WithTimeout(ctx, userPatience)
	defer cancel()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := refused(ctx, nc); err != nil {
		return nil, err
	}
	if err := nc.PublishRequest("$SYS.REQ.USER.INFO", inbox, nil); err != nil {
		return nil, err
	}
	if err := refused(ctx, nc); errors.Is(err, ErrNoPermission) {
		return nil, errUserHidden
	} else if err != nil {
		return nil, err
	}
	answer, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("the server does not say what this user may do: %w", err)
	}
	if answer.Header.Get("Status") == "503" {
		return nil, errors.New("the server does not say what this user may do")
	}
	var reply struct {
		Data *User `json:"data"`
	}
	if err := json.Unmarshal(answer.Data, &reply); err != nil || reply.Data == nil {
		return nil, errors.Join(errors.New("the server's answer about this user cannot be read"), err)
	}
	return reply.Data, nil
}

// refused waits until the server has seen all that was sent, and says if it refused any of it: a refusal comes before the
// answer to a ping. It can be asked as long as nothing else has been refused on the connection.
func refused(ctx context.Context, nc *nats.Conn) error {
	if err := nc.FlushWithContext(ctx); err != nil {
		return err
	}
	if refusal := nc.LastError(); errors.Is(refusal, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w: %w", ErrNoPermission, refusal)
	}
	return nil
}
