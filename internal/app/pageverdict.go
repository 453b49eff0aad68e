package app

import (
	"fmt"
	"time"

	"github.com/seed-1cfd9858/relay/pump"
	"github.com/seed-1cfd9858/relay/slot"
)

// level says how much a sentence on the page should worry its reader.
type level string

const (
	levelOK   level = "ok"
	levelRest level = "rest" // nothing to do here, by design: a standby
	levelWarn level = "warn"
	levelBad  level = "bad"
)

// verdict is the one sentence on top of the page. It has no figure that changes while nothing else does, so that a screen
// reader says it once.
type verdict struct {
	Level  level      `json:"level"`
	Text   string     `json:"text"`   // "Paused"
	Since  *time.Time `json:"since"`  // "since 14:02"
	Reason string     `json:"reason"` // "stream OUTBOX is full"; "" if there is none
	Detail string     `json:"detail"` // what waits, or what comes next
}

// behindAfter is from when the page calls a relay behind that delivers all the time.
const behindAfter = 10 * time.Second

// judgeSelf says how a relay is.
func judgeSelf(s pump.Status, turned, now time.Time) verdict {
	paused := levelWarn
	if s.WaitingFor != "" && now.Sub(s.WaitingSince) >= unreadyAfter {
		paused = levelBad
	}
	lag, known := s.Lag(now)
	lastStored := latest(s.LastStored, s.Oldest, s.Since)
	switch {
	case hung(turned, now) != "":
		return verdict{levelBad, "Hanging", &turned, "the relay's loop does not turn", "Restart it: nothing is lost by that."}
	case s.State == pump.StateStopped:
		return verdict{levelBad, "Stopped", &s.Since, "", "The last lines of the log say why."}
	case s.State == pump.StateDraining && s.WaitingFor != "":
		return verdict{levelBad, "Stopping", &s.Since, s.WaitingFor, waits(s, now) + " What is not stored in time the next relay sends."}
	case s.State == pump.StateDraining:
		return verdict{levelWarn, "Stopping", &s.Since, "", "It stores what it has read, and reads no more."}
	case s.State == pump.StateStandby && s.WaitingFor != "":
		return verdict{paused, "Not relaying", &s.WaitingSince, s.WaitingFor, "It tries again by itself. PostgreSQL keeps the events meanwhile."}
	case s.State == pump.StateStandby:
		return verdict{levelRest, "Standing by", nil, "", holderText(s.Slot) + " This relay takes over when the slot is free."}
	case s.WaitingFor != "":
		return verdict{paused, "Paused", &s.WaitingSince, s.WaitingFor, waits(s, now) + " It tries again by itself; PostgreSQL keeps what comes meanwhile."}
	case s.State == pump.StateResuming:
		return verdict{levelWarn, "Starting", &s.Since, "", "It reads back what the stream has already, then it delivers."}
	case s.Events > 0 && now.Sub(lastStored) >= stalledAfter:
		return verdict{levelBad, "Stalled", &lastStored, "events wait and nothing is stored", waits(s, now)}
	case known && lag >= behindAfter:
		return verdict{levelWarn, "Delivering, and behind.", nil, "", waits(s, now)}
	case s.Events > 0:
		return verdict{levelOK, "Delivering.", nil, "", waits(s, now)}
	case !known:
		return verdict{levelOK, "Delivering.", nil, "", "PostgreSQL has not said yet that it has nothing more to send."}
	}
	return verdict{levelOK, "Delivering. Nothing waits.", nil, "", ""}
}

// with takes in how near the slot is to being lost.
func (v verdict) with(d danger) verdict {
	switch {
	case d.Level != levelWarn && d.Level != levelBad:
	case v.Level == levelOK:
		v.Level, v.Text = d.Level, "Delivering, but the slot is in danger."
	case v.Level == levelWarn:
		v.Level = d.Level
	}
	return v
}

func waits(s pump.Status, now time.Time) string {
	if s.Events == 0 {
		return "Nothing that was read waits."
	}
	verb := "wait"
	if s.Events == 1 {
		verb = "waits"
	}
	text := fmt.Sprintf("%s %s", plural(s.Events, "event", "events"), verb)
	if lag, known := s.Lag(now); known {
		text += ", the oldest for " + span(lag)
	}
	return text + "."
}

func holderText(s *slot.Slot) string {
	switch {
	case s == nil:
		return "The slot was not looked at yet."
	case s.Holder != nil && s.Holder.Address != "":
		return fmt.Sprintf("Process %d, for %s, holds the slot.", s.Holder.PID, s.Holder.Address)
	case s.ActivePID != nil:
		return fmt.Sprintf("Process %d of PostgreSQL holds the slot.", *s.ActivePID)
	}
	return "Another relay holds the slot."
}

// danger is how near the slot is to being lost.
type danger struct {
	Level    level    `json:"level"`
	Text     string   `json:"text"`         // "" if there is none
	Fix      string   `json:"fix"`          // what helps; "" if there is none
	LostIn   *float64 `json:"lost_seconds"` // if nothing were confirmed from now on, at the present rate of WAL; null if never or not known
	UsedPart *float64 `json:"used"`         // of the WAL that the slot may hold back, 0 to 1; null without a limit
}

// From when the page and the alerts call a slot in danger.
const (
	dangerPart  = 0.9 // of what it may hold back
	warningPart = 0.75
	dangerLeft  = time.Hour // at the rate at which its room shrinks
	warningLeft = 6 * time.Hour
)

// judgeSlot says how near a slot is to being lost.
func judgeSlot(s *slot.Slot, rates walRates) danger {
	if s == nil {
		return danger{Level: levelRest, Text: "The slot was not looked at yet."}
	}
	d := danger{Level: levelOK}
	if s.SafeWALBytes != nil && s.RetainedBytes != nil {
		safe := float64(max(*s.SafeWALBytes, 0))
		part := 1.0
		if whole := float64(*s.RetainedBytes) + safe; whole > 0 {
			part = float64(*s.RetainedBytes) / whole
		}
		d.UsedPart = &part
		if rates.Written != nil && *rates.Written > 0 {
			left := safe / *rates.Written
			d.LostIn = &left
		}
	}
	left := time.Duration(1<<63 - 1)
	if s.SafeWALBytes != nil && rates.Shrinks != nil && *rates.Shrinks > 0 {
		left = longTime(float64(*s.SafeWALBytes) / *rates.Shrinks)
	}
	switch used := valueOr(d.UsedPart, 0); {
	case s.Lost():
		d.Level, d.Text = levelBad, "The slot is lost: PostgreSQL gave it up."
	case s.WALStatus == "unreserved":
		d.Level, d.Text = levelBad, "The slot is lost at the next checkpoint unless it moves: it holds more WAL than it may."
	case left < dangerLeft:
		d.Level, d.Text = levelBad, "The slot is lost in about "+span(left)+" if this goes on."
	case used >= dangerPart:
		d.Level, d.Text = levelBad, "The slot holds back nearly all the WAL that it may."
	case left < warningLeft:
		d.Level, d.Text = levelWarn, "The slot's room shrinks: it is lost in about "+span(left)+" if this goes on."
	case used >= warningPart:
		d.Level, d.Text = levelWarn, "The slot holds back most of the WAL that it may."
	}
	if d.Level != levelOK && !s.Lost() {
		d.Fix = rescue(s)
	}
	return d
}

// rescue is what gives a slot room: the end of the transaction that holds the WAL, or the end of what keeps the relay.
func rescue(s *slot.Slot) string {
	if s.RetainedBytes != nil && s.UnconfirmedBytes != nil && *s.RetainedBytes > 2**s.UnconfirmedBytes {
		return "an old transaction holds most of it: end it\nSELECT pid, state, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start LIMIT 3;"
	}
	return "end what keeps the relay. If the disk has room, that wins time:\nALTER SYSTEM SET max_slot_wal_keep_size = '20GB'; SELECT pg_reload_conf();"
}

// longTime makes a duration of seconds that may be too many for one.
func longTime(seconds float64) time.Duration {
	const century = 100 * 365 * 24 * time.Hour
	return time.Duration(min(max(seconds, 0), century.Seconds()) * float64(time.Second))
}
