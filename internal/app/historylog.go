package app

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// maxFailures is how many kinds of trouble a relay remembers for its page.
const maxFailures = 8

// failure is one kind of trouble as the log told it, last.
type failure struct {
	Level   string    `json:"level"` // warn or error
	Message string    `json:"message"`
	Code    *string   `json:"code"`
	Reason  *string   `json:"reason"`
	Advice  *string   `json:"advice"`
	Runbook *string   `json:"runbook"` // the section of docs/runbook.md
	First   time.Time `json:"first_at"`
	Last    time.Time `json:"last_at"`
	Times   int       `json:"times"`
}

// failures remembers what was logged as a warning or an error, the newest kind first. It is safe for concurrent use.
type failures struct {
	mu  sync.Mutex
	all []failure
}

func (f *failures) add(r slog.Record) {
	next := failure{Level: "warn", Message: r.Message, First: r.Time, Last: r.Time, Times: 1}
	if r.Level >= slog.LevelError {
		next.Level = "error"
	}
	next.Runbook = orNil(runbookSection(r.Message))
	r.Attrs(func(a slog.Attr) bool {
		text := a.Value.Resolve().String()
		if text == "" {
			return true
		}
		switch a.Key {
		case "code":
			next.Code = &text
		case "reason", "err", "problem":
			text = oneLine(text)
			next.Reason = &text
		case "advice", "fix":
			next.Advice = &text
		}
		return true
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	same := slices.IndexFunc(f.all, func(old failure) bool {
		return old.Message == next.Message && valueOr(old.Code, "") == valueOr(next.Code, "")
	})
	if same >= 0 {
		next.First, next.Times = f.all[same].First, f.all[same].Times+1
		f.all = slices.Delete(f.all, same, same+1)
	}
	f.all = slices.Insert(f.all, 0, next)
	f.all = f.all[:min(len(f.all), maxFailures)]
}

func (f *failures) list() []failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]failure{}, f.all...)
}

// watch returns a logger that writes as log does and remembers its warnings and errors.
func (f *failures) watch(log *slog.Logger) *slog.Logger {
	return slog.New(&failureHandler{Handler: log.Handler(), failures: f})
}

type failureHandler struct {
	slog.Handler
	failures *failures
}

// Enabled lets warnings through to Handle even if they are not written.
func (h *failureHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.Handler.Enabled(ctx, level)
}

// Handle remembers what is bad, and passes everything on.
func (h *failureHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		h.failures.add(r)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs and WithGroup keep the memory.
func (h *failureHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &failureHandler{Handler: h.Handler.WithAttrs(attrs), failures: h.failures}
}

// WithGroup is as WithAttrs.
func (h *failureHandler) WithGroup(name string) slog.Handler {
	return &failureHandler{Handler: h.Handler.WithGroup(name), failures: h.failures}
}

func valueOr[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}
