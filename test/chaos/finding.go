package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// finding is one thing that is not as promised.
type finding struct {
	kind *int // its counter
	text string
	at   time.Time // zero: of no one moment
}

// struck is a fault that was played.
type struck struct {
	name     string
	from, to time.Time
}

const (
	shown = 5 // findings of a kind

	before = 5 * time.Second // a fault that was over as long before a finding may have brought it about
	after  = time.Second     // clocks are read by several processes
)

// find counts what is not as promised, and keeps the first of each kind. What is only counted is excused.
func (r *result) find(counter *int, at time.Time, format string, args ...any) {
	*counter++
	kept := 0
	for _, f := range r.wrong {
		if f.kind == counter {
			kept++
		}
	}
	if kept < shown {
		r.wrong = append(r.wrong, finding{counter, fmt.Sprintf(format, args...), at})
	}
}

// strikes notes that faults begin, and by the func it returns that they are over.
func (r *result) strikes(all []fault) (over func()) {
	first := len(r.struck)
	for _, f := range all {
		r.struck = append(r.struck, struck{name: f.name, from: time.Now()})
	}
	return func() {
		for i := range all {
			r.struck[first+i].to = time.Now()
		}
	}
}

// around names the faults about a moment, "" for none.
func (r *result) around(at time.Time) string {
	var names []string
	for _, s := range r.struck {
		if !s.from.After(at.Add(after)) && !s.to.Before(at.Add(-before)) {
			names = append(names, fmt.Sprintf("%s (%.1f-%.1f s)", s.name, s.from.Sub(r.began).Seconds(), s.to.Sub(r.began).Seconds()))
		}
	}
	return strings.Join(names, ", ")
}

// verdict is an error unless everything is as promised.
func (r *result) verdict() error {
	if len(r.wrong) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("NOT as promised:\n")
	for _, f := range r.wrong {
		b.WriteString("  " + f.text + "\n")
		if f.at.IsZero() {
			continue
		}
		fmt.Fprintf(&b, "    at %.1f s", f.at.Sub(r.began).Seconds())
		if faults := r.around(f.at); faults != "" {
			b.WriteString(", around: " + faults)
		}
		b.WriteString("\n")
	}
	b.WriteString("relays' logs: " + strings.Join(r.logs, " "))
	return errors.New(b.String())
}
