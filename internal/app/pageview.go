package app

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/pump"
	"github.com/seed-1cfd9858/relay/slot"
)

// pageView is everything that the page says at one moment.
type pageView struct {
	pageFacts
	Now      time.Time
	Status   pump.Status
	Verdict  verdict
	Danger   danger
	Rates    walRates
	Advice   string // about the present trouble, as the log gave it
	Failures []failure
	Figures  []figure

	Live        *publisher.Stream
	LiveAt      time.Time
	LiveError   string
	LiveAdvice  string
	LiveTrouble []publisher.Problem

	Style  template.CSS
	Script template.JS

	samples []sample
}

// figure is one number of the page and the series of its chart.
type figure struct {
	Title  string
	Series string // the sample's keys, the one that is drawn as a line first
	Unit   string // for the script: count, seconds
	Now    string
	Suffix string
	Help   string
}

func (p *page) view(now time.Time) pageView {
	s := p.relay.Status()
	v := pageView{
		pageFacts: p.facts, Now: now, Status: s, Verdict: judgeSelf(s, p.relay.Turned(), now), Failures: p.failures.list(),
		Style: template.CSS(p.style), Script: template.JS(p.script), samples: p.history.all(),
	}
	v.Rates = ratesOf(v.samples)
	v.Danger = judgeSlot(s.Slot, v.Rates)
	v.Verdict = v.Verdict.with(v.Danger)
	v.Figures = figuresOf(s, v.samples, now)
	if s.WaitingFor != "" && len(v.Failures) > 0 && !v.Failures[0].Last.Before(s.WaitingSince) {
		v.Advice = valueOr(v.Failures[0].Advice, "")
	}
	stream, at, err := p.stream.last()
	v.LiveAt = at
	switch {
	case err != nil:
		v.LiveError, v.LiveAdvice = oneLine(err.Error()), advice(err)
	case stream != nil:
		v.Live, v.LiveTrouble = stream, stream.Problems(p.facts.Subject)
	}
	return v
}

const unknown = "–"

// figuresOf returns what has a chart.
func figuresOf(s pump.Status, samples []sample, now time.Time) []figure {
	rate, latency := unknown, unknown
	const recent = 12 // samples: a minute
	for _, sample := range samples[max(0, len(samples)-recent):] {
		if sample.Rate != nil {
			rate = perSecond(*sample.Rate)
		}
		if sample.LatencyMean != nil {
			latency = shortSpan(*sample.LatencyMean)
		}
	}
	lagText, unitOfWaiting := unknown, "events"
	if lag, known := s.Lag(now); known {
		lagText = shortSpan(lag.Seconds())
	}
	if s.Events == 1 {
		unitOfWaiting = "event"
	}
	waiting := unknown // what a standby does not read it does not know
	if s.Leading() {
		waiting = count(uint64(s.Events))
	}
	return []figure{
		{"Rate", "events_per_second", "count", rate, "events/s", "Events stored in the stream, each second."},
		{"Lag", "lag_seconds", "seconds", lagText, "", "Age of the oldest event that is read and not stored; 0 when nothing waits."},
		{"Latency", "latency_mean_seconds latency_max_seconds", "seconds", latency, "", "From commit to stored: mean, and the slowest as a thin line."},
		{"Waiting", "events", "count", waiting, unitOfWaiting, "Events read and not yet stored. What PostgreSQL has not sent yet is not in it."},
	}
}

// perSecond writes a rate for people: 0, 0.4, 12, 18 204.
func perSecond(r float64) string {
	if r > 0 && r < 10 {
		return fmt.Sprintf("%.1f", r)
	}
	return count(uint64(max(r, 0) + 0.5))
}

// shortSpan writes seconds for people, with milliseconds: 0 s, 0.8 ms, 23 ms, 1.2 s, 3 m 10 s.
func shortSpan(seconds float64) string {
	switch {
	case seconds <= 0:
		return "0 s"
	case seconds < 0.01:
		return fmt.Sprintf("%.1f ms", seconds*1000)
	case seconds < 1:
		return fmt.Sprintf("%.0f ms", seconds*1000)
	}
	return span(longTime(seconds))
}

// ForTransaction is the WAL that is kept only because a transaction of the database is old.
func (v pageView) ForTransaction() *int64 {
	s := v.Status.Slot
	if s == nil || s.RetainedBytes == nil || s.UnconfirmedBytes == nil {
		return nil
	}
	n := max(*s.RetainedBytes-*s.UnconfirmedBytes, 0)
	return &n
}

// LostIn says how long the slot has if nothing is confirmed from now on.
func (v pageView) LostIn() string {
	s := v.Status.Slot
	switch {
	case s == nil || s.RetainedBytes == nil:
		return "not known"
	case s.Lost():
		return "lost"
	case s.SafeWALBytes == nil:
		return "until the disk is full"
	case v.Rates.Written == nil:
		return "not known yet"
	case v.Danger.LostIn == nil:
		return "no WAL is written"
	}
	return span(longTime(*v.Danger.LostIn))
}

// Used is the part of its WAL that the slot holds, as whole percent.
func (v pageView) Used() string {
	if v.Danger.UsedPart == nil {
		return ""
	}
	return fmt.Sprintf("%.0f", *v.Danger.UsedPart*100)
}

// BarWidth is Used in the units of the drawing, 0 to 200.
func (v pageView) BarWidth() string { return fmt.Sprintf("%.1f", valueOr(v.Danger.UsedPart, 0)*200) }

// WALRate is how much WAL the server writes.
func (v pageView) WALRate() string {
	if v.Rates.Written == nil {
		return "not known yet"
	}
	return size(int64(*v.Rates.Written)) + "/s"
}

// StateNow marks the present state in the drawing.
func (v pageView) StateNow(name string) string {
	if string(v.Status.State) == name {
		return "state now " + string(v.Verdict.Level)
	}
	return "state"
}

// Title is what a browser's tab says.
func (v pageView) Title() string { return strings.TrimSuffix(v.Verdict.Text, ".") + " · " + v.Slot }

func pageFuncs() template.FuncMap {
	return template.FuncMap{
		"size": func(n *int64) string {
			if n == nil {
				return unknown
			}
			return size(*n)
		},
		"bytes": func(n uint64) string { return size(int64(min(n, 1<<62))) },
		"limit": size,
		"count": count,
		"span":  span,
		"mode":  func(s *publisher.Stream) string { return streamMode(*s) },
		"text":  func(s *string) string { return valueOr(s, "") },
		"lines": lines,
		"typed": func(line string) bool { return typed(line) != line },
		"rfc":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"clock": func(t time.Time) string { return clock(t, time.Now()) },
		"lsn": func(s pump.Status) string {
			if !s.Leading() || s.Confirmed == 0 {
				return unknown
			}
			return s.Confirmed.String()
		},
		"walStatus": func(s *slot.Slot) string {
			if s == nil || s.WALStatus == "" {
				return "not known"
			}
			return s.WALStatus
		},
	}
}

// clock writes a time of today without its date. It is UTC; the script makes it the reader's.
func clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05 UTC")
	}
	return t.Format("2 Jan 15:04 UTC")
}
