package publisher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// DefaultDuplicateWindow is the duplicate window of a stream that CreateStream makes.
const DefaultDuplicateWindow = 2 * time.Minute

// ErrSubjectPrefix is the error of a subject template that begins with a column: no stream can be made for it, since
// its subjects could be any.
var ErrSubjectPrefix = errors.New("the subject template begins with a column")

// StreamOptions is what may be chosen about a stream that CreateStream makes.
type StreamOptions struct {
	Name            string
	SubjectTemplate string        // the relay's subject template, outbox.{topic} say
	Replicas        int           // 0 = one, and any number fits
	MaxAge          time.Duration // 0 = messages are kept for ever, and any age fits
	DuplicateWindow time.Duration // 0 = DefaultDuplicateWindow, and any longer one fits
}

// Subjects returns what a stream has to listen to for the template. The error wraps ErrSubjectPrefix.
func (o StreamOptions) Subjects() ([]string, error) {
	pattern, err := templatePattern(o.SubjectTemplate)
	if err != nil {
		return nil, err
	}
	return []string{pattern}, nil
}

// CreateStream makes the stream unless one of that name exists: stored in files, kept by limits, refusing new messages
// rather than dropping old ones, unlimited unless asked, open for batches where the server knows them. A stream that
// exists is left as it is: diff says, one line each, in what it does not fit; none if it does.
func CreateStream(ctx context.Context, nc *nats.Conn, domain string, opts StreamOptions) (created bool, s Stream, diff []string, err error) {
	subjects, err := opts.Subjects()
	if err != nil {
		return false, Stream{}, nil, err
	}
	s, err = InspectStream(ctx, nc, domain, opts.Name)
	if err == nil {
		return false, s, opts.diff(s), nil
	}
	if !errors.Is(err, ErrStreamMissing) {
		return false, Stream{}, nil, err
	}
	level, err := apiLevel(ctx, nc, domain)
	if err != nil {
		return false, Stream{}, nil, err
	}
	config := streamConfig{
		Name: opts.Name, Subjects: subjects, Description: "events of a transactional outbox, written by relay alone",
		Storage: "file", Retention: "limits", Discard: "new",
		Replicas: max(opts.Replicas, 1), MaxAge: opts.MaxAge, DuplicateWindow: opts.DuplicateWindow,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1, MaxConsumers: -1,
		AllowDirect: true, AllowBatched: level >= BatchAPILevel,
	}
	if config.DuplicateWindow == 0 {
		config.DuplicateWindow = DefaultDuplicateWindow
		if opts.MaxAge > 0 {
			config.DuplicateWindow = min(DefaultDuplicateWindow, opts.MaxAge) // the server refuses a longer one
		}
	}
	var info streamInfo
	if err := apiRequest(ctx, nc, domain, "STREAM.CREATE."+opts.Name, config, &info); err != nil {
		return false, Stream{}, nil, fmt.Errorf("create stream %q: %w", opts.Name, err)
	}
	return true, info.stream(), nil, nil
}

func apiLevel(ctx context.Context, nc *nats.Conn, domain string) (int, error) {
	var info struct {
		API struct {
			Level int `json:"level"`
		} `json:"api"`
	}
	if err := apiRequest(ctx, nc, domain, "INFO", nil, &info); err != nil {
		return 0, fmt.Errorf("ask JetStream for its level: %w", err)
	}
	return info.API.Level, nil
}

func (o StreamOptions) diff(s Stream) []string {
	var diff []string
	differs := func(differs bool, key string, have, want any) {
		if differs {
			diff = append(diff, fmt.Sprintf("%s: is %v, want %v", key, have, want))
		}
	}
	pattern, err := templatePattern(o.SubjectTemplate)
	differs(err == nil && !covered(s.Subjects, pattern), "subjects", strings.Join(s.Subjects, ", "), pattern)
	differs(s.Storage != "file", "storage", s.Storage, "file")
	differs(s.Retention != "limits", "retention", s.Retention, "limits")
	differs(s.Discard != "new" && s.limited(), "discard", s.Discard, "new")
	differs(o.Replicas > 0 && s.Replicas != o.Replicas, "replicas", s.Replicas, o.Replicas)
	differs(o.MaxAge > 0 && s.MaxAge != o.MaxAge, "max age", limit(s.MaxAge), o.MaxAge)
	switch {
	case o.DuplicateWindow > 0:
		differs(s.DuplicateWindow != o.DuplicateWindow, "duplicate window", s.DuplicateWindow, o.DuplicateWindow)
	case s.MaxAge == 0 || s.MaxAge > s.DuplicateWindow:
		differs(s.DuplicateWindow < DefaultDuplicateWindow, "duplicate window", s.DuplicateWindow, "at least "+DefaultDuplicateWindow.String())
	}
	for _, flag := range []struct {
		set bool
		key string
	}{
		{s.NoAck, "no ack"},
		{s.Sealed, "sealed"},
		{s.Mirror, "mirror"},
		{s.Sources, "sources"},
		{s.SubjectTransform, "subject transform"},
		{s.PersistMode == "async", "asynchronous persistence"},
		{s.AllowMsgCounter, "message counter"},
		{s.AllowMsgTTL, "message TTL"},
	} {
		differs(flag.set, flag.key, "on", "off")
	}
	return diff
}

// limited says that messages can be dropped, or refused, because there are too many.
func (s Stream) limited() bool { return s.MaxMsgs > 0 || s.MaxBytes > 0 || s.MaxMsgsPerSubject > 0 }

func limit(d time.Duration) string {
	if d <= 0 {
		return "none"
	}
	return d.String()
}

// templatePattern returns the narrowest subject filter that takes every subject of the template. A template without
// columns is its own filter; a text that ends in a dot is a template's constant prefix.
func templatePattern(template string) (string, error) {
	prefix, _, open := strings.Cut(template, "{")
	if !open && !strings.HasSuffix(prefix, ".") {
		if prefix == "" {
			return "", ErrSubjectPrefix
		}
		return prefix, nil
	}
	end := strings.LastIndexByte(prefix, '.')
	if end <= 0 {
		return "", fmt.Errorf("%w (%q): begin it with a word of its own, outbox.%s say", ErrSubjectPrefix, template, template)
	}
	return prefix[:end+1] + ">", nil
}

// covered says that one of the filters takes every subject that pattern takes.
func covered(filters []string, pattern string) bool {
	for _, filter := range filters {
		if covers(strings.Split(filter, "."), strings.Split(pattern, ".")) {
			return true
		}
	}
	return false
}

func covers(filter, pattern []string) bool {
	for i, token := range filter {
		switch {
		case i >= len(pattern):
			return false
		case token == ">":
			return true
		case pattern[i] == ">" || (token != "*" && token != pattern[i]):
			return false
		}
	}
	return len(filter) == len(pattern)
}

// touched says that one of the filters takes at least one subject that pattern takes.
func touched(filters []string, pattern string) bool {
	for _, filter := range filters {
		if overlaps(strings.Split(filter, "."), strings.Split(pattern, ".")) {
			return true
		}
	}
	return false
}

func overlaps(filter, pattern []string) bool {
	for i := 0; i < len(filter) && i < len(pattern); i++ {
		if filter[i] == ">" || pattern[i] == ">" {
			return true
		}
		if filter[i] != "*" && filter[i] != pattern[i] {
			return false
		}
	}
	return len(filter) == len(pattern)
}
