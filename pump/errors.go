package pump

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed-1cfd9858/relay/outbox"
	"github.com/seed-1cfd9858/relay/slot"
)

// HaltError ends Run at an event that can never be stored. The events before it are stored and confirmed, as far as
// whole transactions go; it and those after it are not.
type HaltError struct {
	Event    *outbox.PoisonError
	Position string // as in Relay-Position
}

func (e *HaltError) Error() string {
	return fmt.Sprintf("halted at event id=%q subject=%q position %q: it can never be stored: %s",
		e.Event.ID, e.Event.Subject, e.Position, e.Event.Reason)
}

func (e *HaltError) Unwrap() error { return e.Event }

// Advice is the line to type for an operator who accepts that the event is not delivered.
func (e *HaltError) Advice() string {
	return fmt.Sprintf("repair what refuses it, or leave this one event out: relay run --skip-event '%s'", e.Position)
}

// UnfitError ends Run because the slot, the publication or the table cannot be used. Nothing on the server was changed.
type UnfitError struct {
	Where    string
	Problems []slot.Problem // broken ones only, at least one
}

func (e *UnfitError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.Text
	}
	return strings.Join(texts, "; ")
}

// Advice returns the lines that mend it.
func (e *UnfitError) Advice() string {
	var fixes []string
	for _, p := range e.Problems {
		if p.Fix != "" {
			fixes = append(fixes, p.Fix)
		}
	}
	return strings.Join(fixes, "\n")
}

// Slot reports whether it is the slot that cannot be used, rather than the publication or the table.
func (e *UnfitError) Slot() bool { return e.Problems[0].Kind == slot.KindSlot }

// PermanentError ends Run because trying again is of no use, found before the first session of this process: what is
// wrong at deploy time should fail then. Later the same error is retried.
type PermanentError struct {
	Err    error
	advice string
}

func (e *PermanentError) Error() string { return "cannot use PostgreSQL: " + slot.Reason(e.Err) }
func (e *PermanentError) Unwrap() error { return e.Err }

// Advice says what to do next.
func (e *PermanentError) Advice() string { return e.advice }

// Why a session was given up, apart from its own errors.
var (
	errYield     = errors.New("no broker: leaving the slot to another relay for a while")
	errSlotTaken = errors.New("the slot is held by another relay")
)
