package app

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-1cfd9858/relay/slot"
)

// statusWidth is where the verdict of the first line ends.
const statusWidth = 96

// printStatus writes the report for people: is it well, what waits, how much room is left, what was stored, and then what
// is wrong with what mends it. state is nil if PostgreSQL could not be asked.
func printStatus(w io.Writer, c common, r *statusReport, state *slot.State) error {
	b := &strings.Builder{}
	headline := c.slot.Slot + "   " + leaderText(r, state)
	verdict := strings.ToUpper(r.Verdict)
	gap := max(3, statusWidth-utf8.RuneCountInString(headline)-len(verdict))
	fmt.Fprintf(b, "%s%s%s\n", headline, strings.Repeat(" ", gap), verdict)
	if r.Slot != nil {
		fmt.Fprintf(b, "  %-12s %-30s lag %s\n", "waiting", pendingText(r), lagText(r))
		fmt.Fprintf(b, "  %-12s %-30s %s\n", "WAL held", heldText(r, state), walText(r))
		if text := lostText(r); text != "" {
			fmt.Fprintf(b, "  %-12s %s\n", "slot lost", text)
		}
	}
	if s := r.Stream; s != nil {
		last := "none yet"
		if s.LastStoredAt != nil {
			last = "the last " + span(time.Since(*s.LastStoredAt)) + " ago"
		}
		fmt.Fprintf(b, "  %-12s %-30s %s, %s\n", "stream",
			fmt.Sprintf("%s, %s, %s", s.Name, s.Storage, plural(s.Replicas, "replica", "replicas")),
			plural(int(min(s.Messages, 1<<60)), "message", "messages"), last)
	}
	if f := r.LastFailure; f != nil {
		fmt.Fprintf(b, "  %-12s %s\n", "last failure", failureText(f))
	}
	var told string // the same advice twice in a row is given once, at the end
	tell := func(fix string) {
		for _, line := range lines(fix) {
			fmt.Fprintf(b, "  %-12s   %s\n", "", line)
		}
	}
	for _, reason := range r.Reasons {
		if reason.severity == note {
			continue
		}
		if reason.Fix != told {
			tell(told)
		}
		told = reason.Fix
		mark := "FAIL"
		if reason.severity == warning {
			mark = "warn"
		}
		fmt.Fprintf(b, "  %-12s %s\n", mark, reason.Text)
	}
	tell(told)
	_, err := io.WriteString(w, b.String())
	return err
}

func leaderText(r *statusReport, state *slot.State) string {
	switch {
	case state == nil:
		return "not known: PostgreSQL could not be asked"
	case state.InRecovery:
		return state.Where + " is a standby"
	case r.Slot == nil:
		return "no such slot on " + state.Where
	case r.Leader == nil && state.Slot.InactiveSince != nil:
		return "nobody relays, for " + span(state.At.Sub(*state.Slot.InactiveSince))
	case r.Leader == nil:
		return "nobody relays"
	}
	text := "leading"
	if r.Leader.Since != nil {
		text += " for " + span(state.At.Sub(*r.Leader.Since))
	}
	if r.Leader.URL != nil && r.Leader.State != nil {
		text += ", " + *r.Leader.State
	}
	text += fmt.Sprintf("  (pid %d", r.Leader.PID)
	if r.Leader.Address != nil {
		text += " on " + *r.Leader.Address
	}
	return text + ")"
}

func pendingText(r *statusReport) string {
	p := r.Pending
	switch {
	case p.Events == nil && r.Leader != nil && r.Leader.URL == nil:
		return "not known, ask with --relay"
	case p.Events == nil:
		return "not known"
	}
	text := plural(int(*p.Events), "event", "events")
	switch {
	case *p.AtLeast && *p.Source == pendingLeader:
		text += " in the relay, perhaps more in PostgreSQL"
	case *p.AtLeast:
		text = "~ " + text + " or more"
	case !*p.Exact:
		text = "~ " + text
	}
	if p.OldestAgeSeconds != nil && *p.OldestAgeSeconds > 0 {
		text += ", the oldest " + span(longTime(*p.OldestAgeSeconds))
	}
	return text
}

// lostText says when the slot is lost if nothing more is confirmed.
func lostText(r *statusReport) string {
	switch {
	case r.Slot.LostInSeconds == nil || r.Slot.WALBytesPerSecond == nil:
		return ""
	case *r.Slot.LostInSeconds <= 0:
		return "at the next checkpoint, unless it moves"
	}
	return fmt.Sprintf("in %s if nothing is confirmed, at %s of WAL a second", span(longTime(*r.Slot.LostInSeconds)), size(int64(*r.Slot.WALBytesPerSecond)))
}

func failureText(f *failure) string {
	text := span(time.Since(f.Last)) + " ago: " + f.Message
	if f.Reason != nil {
		text += ": " + *f.Reason
	}
	if f.Times > 1 {
		text += fmt.Sprintf(" (%d times)", f.Times)
	}
	return text
}

func lagText(r *statusReport) string {
	text := sizeOr(r.Lag.Bytes)
	if r.Lag.Seconds != nil {
		text += ", " + span(time.Duration(*r.Lag.Seconds*float64(time.Second)))
	}
	return text
}

func heldText(r *statusReport, state *slot.State) string {
	text := sizeOr(r.Slot.RetainedBytes)
	if state.MaxSlotWALKeepBytes != nil {
		return text + " of " + size(*state.MaxSlotWALKeepBytes)
	}
	return text + ", no limit"
}

// walText divides the held WAL: what the relay has not confirmed, and what is kept for a transaction that still runs.
func walText(r *statusReport) string {
	if r.Lag.Bytes == nil || r.Slot.RetainedBytes == nil {
		return ""
	}
	return fmt.Sprintf("%s unconfirmed, %s by the oldest transaction", size(*r.Lag.Bytes), size(max(*r.Slot.RetainedBytes-*r.Lag.Bytes, 0)))
}
