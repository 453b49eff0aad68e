package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// The colours of the story, as SGR codes.
const (
	bold  = "1"
	faint = "2"
	red   = "31"
	green = "32"
)

const indent = "          " // as wide as the time in front of a line

// story tells what happens, line by line, with a line of progress below on a terminal. It is safe for concurrent use.
type story struct {
	w      io.Writer
	live   bool // a terminal: a line may be written over
	colour bool
	start  time.Time

	mu       sync.Mutex
	progress bool // the cursor stands behind a line of progress
}

func newStory(w io.Writer) *story {
	s := &story{w: w, start: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		s.live = true
		s.colour = os.Getenv("NO_COLOR") == ""
	}
	return s
}

// paint colours a text, where there are colours.
func (s *story) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// chapter begins a new part.
func (s *story) chapter(title string) { s.write("\n" + s.paint(bold, title) + "\n") }

// say tells what has just happened, with the time since the start in front.
func (s *story) say(format string, args ...any) {
	at := fmt.Sprintf("%6.1f s  ", s.seconds())
	s.write(s.paint(faint, at) + fmt.Sprintf(format, args...) + "\n")
}

// more goes on from the line before.
func (s *story) more(format string, args ...any) {
	s.write(indent + fmt.Sprintf(format, args...) + "\n")
}

func (s *story) seconds() float64 { return time.Since(s.start).Seconds() }

// line is a line as it is.
func (s *story) line(text string) { s.write(text + "\n") }

// now shows what is going on, in a line that the next one takes the place of. Without a terminal it says nothing.
func (s *story) now(text string) {
	if !s.live {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	if text != "" {
		_, _ = io.WriteString(s.w, s.paint(faint, indent+text))
		s.progress = true
	}
}

func (s *story) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	_, _ = io.WriteString(s.w, text) // a reader that is gone does not change what happens
}

func (s *story) clear() {
	if s.progress {
		_, _ = io.WriteString(s.w, "\r\x1b[K")
		s.progress = false
	}
}

// logger has the sandbox's log told as a part of the story: a download takes a while.
func (s *story) logger() *slog.Logger { return slog.New(s) }

// Enabled, Handle, WithAttrs and WithGroup make the story a slog.Handler.
func (s *story) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle tells one record.
func (s *story) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, ", %s %s", a.Key, a.Value)
		return true
	})
	s.say("%s", b.String())
	return nil
}

// WithAttrs and WithGroup change nothing: the sandbox uses neither.
func (s *story) WithAttrs([]slog.Attr) slog.Handler { return s }

// WithGroup is like WithAttrs.
func (s *story) WithGroup(string) slog.Handler { return s }

// count is a number with its thousands apart: 1 204 331.
func count[T int | int64 | uint64](n T) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + " " + digits[i:]
	}
	return digits
}

// things is a number and its noun: 1 event, 2 events.
func things[T int | int64 | uint64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}
