package app

import (
	"io"
	"log/slog"
)

func newLogger(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo // complained about elsewhere
	}
	opts := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(runbookHandler{slog.NewJSONHandler(w, opts)})
	}
	return slog.New(runbookHandler{slog.NewTextHandler(w, opts)})
}
