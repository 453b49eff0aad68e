package slot

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sentinels; test with errors.Is.
var (
	// ErrConfig is the error of a name that PostgreSQL could not keep or a command could not carry.
	ErrConfig = errors.New("invalid name")
	// ErrSlotMissing says that no slot has the name.
	ErrSlotMissing = errors.New("slot does not exist")
	// ErrSlotActive says that somebody holds the slot.
	ErrSlotActive = errors.New("slot is in use")
	// ErrSlotForeign says that the slot is not one of a relay: physical, or of another plugin or database.
	ErrSlotForeign = errors.New("slot is not a relay's slot of this database")
	// ErrMismatch says that something exists that does not fit.
	ErrMismatch = errors.New("what exists does not fit")
	// ErrFailoverVersion says that the server is too old for failover slots.
	ErrFailoverVersion = errors.New("failover slots need PostgreSQL 17 or later")
)

// MismatchError is the error of Create when something exists that does not fit, or something is missing that Create does
// not make. Nothing was changed. It is ErrMismatch.
type MismatchError struct {
	Where    string // host:port/database
	Problems []Problem
}

func (e *MismatchError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.Text
	}
	return strings.Join(texts, "; ")
}

// Unwrap makes the error ErrMismatch.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// Advice returns the lines that mend it, one for each problem that has one.
func (e *MismatchError) Advice() string {
	var lines []string
	for _, p := range e.Problems {
		if p.Fix != "" {
			lines = append(lines, p.Fix)
		}
	}
	return strings.Join(lines, "\n")
}

// WaitError is the error of Create when the slot was not ready in time or the caller gave up. Nothing half-made is left
// unless Left says so. It unwraps to the context's cause, context.DeadlineExceeded after a timeout.
type WaitError struct {
	Slot    string
	Waited  time.Duration
	Waiting []Transaction // the transactions that still ran when last looked at, oldest first
	Cause   error
}

func (e *WaitError) Error() string {
	s := fmt.Sprintf("slot %q was not ready after %s: it waits for all write transactions that already run (in any database)",
		e.Slot, e.Waited.Round(100*time.Millisecond))
	for i, t := range e.Waiting {
		if i == 3 {
			s += fmt.Sprintf(", and %d more", len(e.Waiting)-i)
			break
		}
		s += map[bool]string{true: ": ", false: ", "}[i == 0] + t.String()
	}
	return s
}

// Unwrap returns the cause.
func (e *WaitError) Unwrap() error { return e.Cause }

// Advice says how to get on.
func (e *WaitError) Advice() string {
	if len(e.Waiting) == 0 {
		return "run slot create again, with more time"
	}
	oldest := e.Waiting[0]
	if oldest.PID == 0 {
		return fmt.Sprintf("finish the prepared transaction (COMMIT PREPARED '%[1]s' or ROLLBACK PREPARED '%[1]s'), then run slot create again",
			oldest.Prepared)
	}
	return fmt.Sprintf("end the oldest transaction (SELECT pg_terminate_backend(%d)) or wait for it, then run slot create again", oldest.PID)
}

// LeftoverError is the error of Create when it failed and something that it made, or may have made, is still there. It
// unwraps to the first failure.
type LeftoverError struct {
	Cause error
	Left  string // what is left
	Fix   string // the line that takes it away, or the next step
}

func (e *LeftoverError) Error() string { return e.Cause.Error() + "; left behind: " + e.Left }

// Unwrap returns the first failure.
func (e *LeftoverError) Unwrap() error { return e.Cause }

// Advice returns the line that clears what is left.
func (e *LeftoverError) Advice() string { return e.Fix }

// DropError is the error of Drop when it refuses. Nothing was changed. It unwraps to ErrSlotMissing, ErrSlotActive or
// ErrSlotForeign.
type DropError struct {
	Reason error
	Text   string
	Fix    string
}

func (e *DropError) Error() string { return e.Text }

// Unwrap returns the sentinel.
func (e *DropError) Unwrap() error { return e.Reason }

// Advice says what to do next.
func (e *DropError) Advice() string { return e.Fix }
