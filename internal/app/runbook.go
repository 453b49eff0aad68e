package app

import (
	"context"
	"log/slog"
)

// runbookPage is where the sections are.
const runbookPage = "docs/runbook.md"

// runbookSection returns the section of the runbook for what the log says as a warning or an error, "" for a message that it
// does not know. Messages are constants, and a test holds this list against the sources.
func runbookSection(message string) string {
	switch message {
	case "publishing is paused, trying again":
		return "stalled"
	case "session ended, another one follows":
		return "sessions-end"
	case "PostgreSQL cannot be used, trying again":
		return "standby-not-ready"
	case "set-up in PostgreSQL":
		return "codes"
	case "draining, then stopping":
		return "the-relay-does-not-run"
	case "the slot cannot be read":
		return "table-or-publication"
	case "the drain timeout has passed: the events that are left will be sent by the next relay",
		"the last confirmation did not reach PostgreSQL: the next relay finds the events in the stream":
		return "exit-0"
	case "the broker lost events that it had acked: sending again what PostgreSQL still has":
		return "stream-regressed"
	case "the stream holds messages of others among this slot's events: they cost time and can cost order",
		"the stream has this event's id from elsewhere: it counts as stored":
		return "foreign-writer"
	case "the stream does not reach back to the slot's confirmed LSN: an event that was stored and removed since is stored again":
		return "stored-again"
	case "order broken: an event is in the stream and an earlier one is not":
		return "order-broken"
	case "event skipped as told: it will not be in the stream":
		return "poison"
	case "old events could not be deleted, trying again later", "old rows stay: they are older than the publication and were never sent",
		"the partitions end soon: rows of a later day will be refused", "partitions could not be made, trying again later":
		return "retention"
	case "an environment variable is ignored: relay has no setting of this name":
		return "exit-2"
	case "no health and no metrics from this relay: the default port is taken", "health and metrics are gone":
		return "no-health-and-no-metrics"
	}
	return ""
}

// runbookHandler adds to each warning and error where the runbook speaks of it.
type runbookHandler struct{ slog.Handler }

// Handle adds the section.
func (h runbookHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		if section := runbookSection(r.Message); section != "" {
			r = r.Clone()
			r.AddAttrs(slog.String("runbook", runbookPage+"#"+section))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the sections.
func (h runbookHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return runbookHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup is as WithAttrs.
func (h runbookHandler) WithGroup(name string) slog.Handler {
	return runbookHandler{h.Handler.WithGroup(name)}
}
