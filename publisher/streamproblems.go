package publisher

import (
	"fmt"
	"strings"
	"time"
)

// Severities of a Problem.
const (
	Broken  = "broken"  // the relay cannot keep its promise on this stream
	Warning = "warning" // it can, with a limit that the operator should know
)

// Problem is one thing about a stream that an operator should know.
type Problem struct {
	Code     string // from the closed list that doctor, logs, runbook and alerts share
	Severity string // Broken or Warning
	Text     string // one sentence
	Fix      string // the line to type, or what to do; "" if there is none
}

// Problems compares the stream with what the relay needs to store, without loss and in order, the events of a subject
// template (or of its constant prefix).
func (s Stream) Problems(subjectTemplate string) []Problem {
	var problems []Problem
	add := func(when bool, severity, code, fix, text string) {
		if when {
			problems = append(problems, Problem{Code: code, Severity: severity, Text: fmt.Sprintf("stream %s %s", s.Name, text), Fix: fix})
		}
	}
	edit := func(flags string) string { return "nats stream edit " + s.Name + " " + flags }
	const newStream = "use a stream made by: relay stream create"

	add(s.NoAck, Broken, "stream_no_ack", edit("--ack"), "does not answer (no_ack): nothing would ever count as stored")
	add(s.Sealed, Broken, "stream_sealed", newStream, "is sealed: it takes no messages")
	add(s.Mirror, Broken, "stream_mirror", newStream, "is a mirror: it takes messages from its origin only")
	add(s.PersistMode == "async", Broken, "stream_persist_async", newStream, "answers before it has written (persist_mode async)")
	add(s.AllowMsgCounter, Broken, "stream_counter", newStream, "is a counter: it refuses events")

	if pattern, err := templatePattern(subjectTemplate); err == nil && !covered(s.Subjects, pattern) {
		have := "listens to nothing"
		if len(s.Subjects) > 0 {
			have = "listens to " + strings.Join(s.Subjects, ", ")
		}
		if touched(s.Subjects, pattern) {
			add(true, Warning, "stream_subjects_partial", edit("--subjects '"+pattern+"'"), have+", the relay's subjects are "+pattern+": some of them would be refused")
		} else {
			add(true, Broken, "stream_subjects", edit("--subjects '"+pattern+"'"), have+", the relay's subjects are "+pattern)
		}
	}

	add(s.Sources, Warning, "stream_sources", newStream,
		"has sources: messages that the relay did not write cost it time, and can cost order without batches")
	add(s.SubjectTransform, Warning, "stream_subject_transform", newStream, "changes subjects as it stores: consumers see others than the relay sent")
	add(s.AllowMsgTTL, Warning, "stream_msg_ttl", "", "lets messages expire one by one: events can be gone before the relay reads its own tail back")
	add(s.Retention == "workqueue" || s.Retention == "interest", Warning, "stream_retention", newStream, fmt.Sprintf(
		"removes messages when they are consumed (%s): after a crash only its duplicate window (%v) keeps events from being stored twice",
		s.Retention, s.DuplicateWindow))
	add(s.Storage == "memory", Warning, "stream_memory", newStream, "is kept in memory: a restart of the server loses stored events")
	add(s.Discard == "old" && s.limited(), Warning, "stream_discard_old", edit("--discard new"),
		"drops its oldest messages when it is full, whether consumed or not")
	add(s.DuplicateWindow < DefaultDuplicateWindow, Warning, "stream_duplicate_window", edit("--dupe-window 2m"),
		fmt.Sprintf("remembers message ids for %v only", s.DuplicateWindow.Round(time.Millisecond)))
	add(s.APILevel >= BatchAPILevel && !s.AllowBatched, Warning, "stream_not_batched", newStream,
		"takes no batches (allow_batched is off): a foreign writer could cost order, not only time")
	return problems
}
