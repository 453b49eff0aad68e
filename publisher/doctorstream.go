package publisher

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// stream judges the stream's configuration.
func (c *checker) stream() {
	s := c.Stream
	if s.Mirror { // it can have neither
		c.problems = slices.DeleteFunc(c.problems, func(p Problem) bool { return p.Code == "stream_subjects" || p.Code == "stream_not_batched" })
	}
	c.ok("stream", "%s, %d messages, %s", s.Name, s.Messages, sizeText(int64(min(s.Bytes, 1<<62))))
	if !c.take("subjects", "stream_subjects", "stream_subjects_partial") {
		c.ok("subjects", "%s takes %s", strings.Join(s.Subjects, ", "), c.Template)
	}
	if !c.take("takes_messages", "stream_sealed", "stream_mirror", "stream_counter") {
		c.ok("takes_messages", "neither sealed, a mirror nor a counter")
	}
	if !c.take("acks", "stream_no_ack", "stream_persist_async") {
		c.ok("acks", "an answer for each message, after it is written")
	}
	if !c.take("storage", "stream_memory") {
		c.ok("storage", "%s", s.Storage)
	}
	c.replicas()
	if !c.take("retention", "stream_retention") {
		c.ok("retention", "%s", s.Retention)
	}
	if !c.take("discard", "stream_discard_old") {
		c.ok("discard", "%s", s.Discard)
	}
	if !c.take("duplicate_window", "stream_duplicate_window") {
		c.ok("duplicate_window", "%s; after a longer outage the relay reads its own end of the stream instead", short(s.DuplicateWindow))
	}
	if !c.take("batches", "stream_not_batched") {
		c.ok("batches", "%s", map[bool]string{true: "allowed", false: "not known to this server"}[s.AllowBatched])
	}
	if !c.take("own_copy", "stream_sources", "stream_subject_transform", "stream_msg_ttl") {
		c.ok("own_copy", "no sources, subject transform or message TTL")
	}
}

func (c *checker) replicas() {
	if n := c.Stream.Replicas; n > 1 {
		c.ok("replicas", "%d", n)
		return
	}
	fix := "nats stream edit " + c.Stream.Name + " --replicas 3"
	if c.Stream.Leader == "" {
		fix = "run three servers as a cluster, or this one with sync_interval: always"
	}
	c.bad(LevelWarn, "replicas", CodeReplicas, fix, "one server holds the only copy, and writes it to its disk every 2 minutes unless it has "+
		"sync_interval: always. What a crash of the machine takes is sent again only with relay run --confirm-delay")
}

// limits judges what can make the stream refuse or forget.
func (c *checker) limits() {
	s := c.Stream
	before := len(c.done)
	if s.Discard == "new" {
		c.filled("messages", s.MaxMsgs, s.Messages, func(n int64) string { return fmt.Sprintf("%d messages", n) })
		c.filled("bytes", s.MaxBytes, s.Bytes, sizeText)
	}
	switch {
	case s.MaxMsgsPerSubject <= 0 || s.Discard == "old": // the latter is said under discard
	case s.DiscardNewPerSubject:
		c.bad(LevelWarn, "limits", CodeSubjectLimit, "nats stream edit "+s.Name+" --max-msgs-per-subject=-1",
			"it refuses more than %d messages of a subject: then the relay waits", s.MaxMsgsPerSubject)
	default:
		c.bad(LevelWarn, "limits", CodeSubjectLimit, "nats stream edit "+s.Name+" --max-msgs-per-subject=-1",
			"it keeps %d messages of a subject and drops older ones, whether consumed or not", s.MaxMsgsPerSubject)
	}
	if len(c.done) == before {
		text := "none on messages and bytes"
		if s.limited() {
			text = "far from reached"
		}
		c.ok("limits", "%s", text)
	}
	switch {
	case s.MaxAge <= 0:
		c.ok("max_age", "messages are kept for ever")
	case s.MaxAge < shortMaxAge:
		c.bad(LevelWarn, "max_age", CodeMaxAge, "nats stream edit "+s.Name+" --max-age 7d",
			"messages are removed after %s: a consumer, or the relay, that is away for longer misses what it would have read back", short(s.MaxAge))
	default:
		c.ok("max_age", "messages are kept for %s", short(s.MaxAge))
	}
}

func (c *checker) filled(flag string, limit int64, used uint64, format func(int64) string) {
	if limit <= 0 || float64(used) < nearlyFull*float64(limit) {
		return
	}
	level, text := LevelWarn, "%s of %s are used"
	if float64(used) >= full*float64(limit) {
		level, text = LevelFail, "%s of %s are used: it refuses events, and the relay waits"
	}
	c.bad(level, "limits", CodeFull, "nats stream edit "+c.Stream.Name+" --max-"+map[string]string{"messages": "msgs", "bytes": "bytes"}[flag]+"=-1",
		text, format(int64(min(used, 1<<62))), format(limit))
}

// writers judges who else writes into the stream.
func (c *checker) writers() {
	switch t := c.Tail; {
	case c.TailErr != nil:
		c.unknown("writers", "not checked: %v", c.TailErr)
	case t == nil:
		c.unknown("writers", "not checked: PostgreSQL's system identifier is not known")
	case t.Foreign > 0:
		from := "says nothing of its origin"
		if t.LastWrote != "" {
			from = "was written by the relay of " + t.LastWrote
		}
		c.bad(LevelWarn, "writers", CodeForeign, "find who else publishes to "+strings.Join(c.Stream.Subjects, ", ")+", or use a stream of this relay's own",
			"%d of the last %d messages are not of this slot (sequence %d %s): they cost the relay time, and can cost order without batches",
			t.Foreign, t.Read, t.Last, from)
	case t.Read == 0:
		c.ok("writers", "the stream is empty")
	default:
		c.ok("writers", "the last messages (%d) are all of this slot", t.Read)
	}
}

// PayloadCheck compares the largest payload that is known, and of what, with what the server and the stream take. There
// must have been a connection.
func (e Examination) PayloadCheck(largest int64, of string) Check {
	limit, whose := e.MaxPayload, "the server's max_payload"
	fix := "raise max_payload in the server's configuration, or keep large contents elsewhere and send a reference"
	if e.Stream != nil && e.Stream.MaxMsgSize > 0 && e.Stream.MaxMsgSize < limit {
		limit, whose = e.Stream.MaxMsgSize, "the stream's max_msg_size"
		fix = "nats stream edit " + e.Stream.Name + " --max-msg-size=-1"
	}
	if largest == 0 {
		return Check{Name: "payload", Level: LevelOK, Text: fmt.Sprintf("no payload in %s; %s is %s", of, whose, sizeText(limit))}
	}
	check := Check{Name: "payload", Level: LevelOK, Text: fmt.Sprintf("the largest of %s has %s; %s is %s", of, sizeText(largest), whose, sizeText(limit))}
	switch {
	case largest+headerRoom > limit:
		check.Level, check.Code, check.Fix = LevelFail, CodePayload, fix
		check.Text += ": such an event halts the relay"
	case float64(largest+headerRoom) >= nearlyFull*float64(limit):
		check.Level, check.Code, check.Fix = LevelWarn, CodePayload, fix
	}
	return check
}

// RetentionCheck compares the time for which rows stay in the outbox with that for which the stream knows their ids. It
// reports false if one of them is not known.
func (e Examination) RetentionCheck(retention time.Duration) (Check, bool) {
	if e.Stream == nil || retention == 0 {
		return Check{}, false
	}
	check := Check{
		Name: "outbox_retention", Level: LevelOK,
		Text: fmt.Sprintf("%s, longer than the stream's duplicate window of %s", short(retention), short(e.Stream.DuplicateWindow)),
	}
	if retention < e.Stream.DuplicateWindow {
		check.Level, check.Code = LevelFail, CodeRetention
		check.Text = fmt.Sprintf("rows stay for %s, less than the stream's duplicate window of %s", short(retention), short(e.Stream.DuplicateWindow))
		check.Fix = "keep rows for at least " + short(e.Stream.DuplicateWindow)
	}
	return check, true
}

// short writes a duration without its zero parts: 2m, 168h.
func short(d time.Duration) string {
	text := d.Round(time.Millisecond).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
