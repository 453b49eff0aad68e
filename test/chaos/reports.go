package main

import (
	"os"
	"strings"
)

// reports are what the relays have said in their logs.
type reports struct {
	broken map[string]bool // ids of events that were stored while an earlier one was not
	never  []string        // lines that no relay may ever write
	purged bool            // the stream no longer holds what may have been stored
}

// saysPurged is how a relay tells that it cannot know what was stored.
const saysPurged = "the stream does not reach back to the slot's confirmed LSN"

func (w *world) reports() (*reports, error) {
	r := &reports{broken: map[string]bool{}}
	for _, m := range w.relays {
		text, err := os.ReadFile(m.log.Name())
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			r.read(strings.TrimSpace(line))
		}
	}
	return r, nil
}

func (r *reports) read(line string) {
	_, rest, found := strings.Cut(line, "order broken: ")
	switch {
	case found:
		_, rest, _ = strings.Cut(rest, "event_id=")
		id, _, _ := strings.Cut(rest, " ")
		r.broken[id] = true
	case strings.Contains(line, saysPurged):
		r.purged = true
	case strings.HasPrefix(line, "panic: "), strings.HasPrefix(line, "fatal error: "), strings.Contains(line, "WARNING: DATA RACE"):
		r.never = append(r.never, line)
	}
}
