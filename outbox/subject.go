package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// DefaultTemplate is the subject template of a relay that names none.
const DefaultTemplate = "outbox.{topic}"

// MaxSubjectBytes bounds a subject. NATS itself ends the connection when the whole protocol line passes 4096 bytes, with no
// way back; a subject beyond a few dozen bytes is a mistake anyway.
const MaxSubjectBytes = 1024

// ErrTemplate is the error of a subject template that cannot be parsed.
var ErrTemplate = errors.New("want a subject with {column} in it, like " + DefaultTemplate)

// Template makes a subject of a row: constant text and columns in braces. The zero value renders nothing; make one with
// ParseTemplate.
type Template struct {
	parts []templatePart
	text  string
}

type templatePart struct {
	text   string // constant, if column is empty
	column string
}

// ParseTemplate reads a template like "orders.{topic}.{aggregate_id}". Its constant parts must already be fit for a
// subject. The error wraps ErrTemplate.
func ParseTemplate(s string) (Template, error) {
	t := Template{text: s}
	for rest := s; rest != ""; {
		open := strings.IndexByte(rest, '{')
		if open < 0 {
			open = len(rest)
		}
		if open > 0 {
			t.parts = append(t.parts, templatePart{text: rest[:open]})
		}
		if rest = rest[open:]; rest == "" {
			break
		}
		end := strings.IndexByte(rest, '}')
		if end < 2 || strings.Contains(rest[1:end], "{") {
			return Template{}, fmt.Errorf("subject template %q: %w", s, ErrTemplate)
		}
		t.parts = append(t.parts, templatePart{column: rest[1:end]})
		rest = rest[end+1:]
	}
	if len(t.Columns()) == 0 || strings.Contains(t.constant(), "}") {
		return Template{}, fmt.Errorf("subject template %q: %w", s, ErrTemplate)
	}
	// With a harmless word for each column the whole must be a subject: what is wrong then is wrong in every subject.
	if reason := subjectFault(t.constant()); reason != "" {
		return Template{}, fmt.Errorf("subject template %q: %s: %w", s, reason, ErrTemplate)
	}
	return t, nil
}

// String returns the template as it was parsed.
func (t Template) String() string { return t.text }

// Columns returns the columns that the template names, each once.
func (t Template) Columns() []string {
	var names []string
	for _, p := range t.parts {
		if p.column != "" && !slices.Contains(names, p.column) {
			names = append(names, p.column)
		}
	}
	return names
}

// Prefix returns the constant text before the first column: "outbox." for "outbox.{topic}".
func (t Template) Prefix() string {
	if len(t.parts) > 0 && t.parts[0].column == "" {
		return t.parts[0].text
	}
	return ""
}

func (t Template) constant() string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.column != "" {
			b.WriteByte('x')
			continue
		}
		b.WriteString(p.text)
	}
	return b.String()
}

// subjectFault says why a subject can never be published, or "". The client library refuses only blanks; the server
// stores wildcards as they stand, drops the connection over long lines, and answers nothing to empty tokens.
func subjectFault(s string) string {
	switch {
	case s == "":
		return "the subject is empty"
	case len(s) > MaxSubjectBytes:
		return fmt.Sprintf("the subject has %d bytes, over the limit of %d", len(s), MaxSubjectBytes)
	case strings.HasPrefix(s, "$"), s == "_INBOX", strings.HasPrefix(s, "_INBOX."):
		return "the subject starts with $ or _INBOX, which belong to NATS itself"
	case !utf8.ValidString(s):
		return "the subject is not UTF-8"
	}
	token := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			switch s[i] {
			case ' ', '\t', '\r', '\n', '\f', '\v', 0:
				return fmt.Sprintf("the subject has a blank or control byte (0x%02x) at byte %d", s[i], i)
			}
			continue
		}
		switch s[token:i] {
		case "":
			return "the subject has an empty token"
		case "*", ">":
			return "the subject has a wildcard as a token"
		}
		token = i + 1
	}
	return ""
}
