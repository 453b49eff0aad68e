// Package history records what happened between a relay and its two servers, and checks that against what a relay
// promises. It knows nothing of how the servers were made: simulation and chaos both feed it.
package history

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Log is a history: one line a step. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	began   time.Time
	entries []entry
	ended   bool
}

type entry struct {
	at     time.Duration
	who    string
	format string
	args   []any
}

// NewLog returns an empty history that begins now.
func NewLog() *Log { return &Log{began: time.Now()} }

// Add notes a step. The arguments are formatted only when somebody reads the history, so they must not change.
func (l *Log) Add(who, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.entries = append(l.entries, entry{at: time.Since(l.began), who: who, format: format, args: args})
}

// End makes the last step the last one: what follows on a violation is not its cause.
func (l *Log) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// Len returns how many steps there are.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Write prints the history, one line a step: time since the beginning, who, what.
func (l *Log) Write(w io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		text := strings.Join(strings.Fields(fmt.Sprintf(e.format, e.args...)), " ")
		if _, err := fmt.Fprintf(w, "%14s  %-9s %s\n", e.at.Round(time.Microsecond), e.who, text); err != nil {
			return err
		}
	}
	return nil
}
