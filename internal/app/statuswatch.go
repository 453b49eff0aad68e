package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/seed-1cfd9858/relay/slot"
)

// minWatchInterval is how often status may look at most.
const minWatchInterval = 200 * time.Millisecond

// watchLook is one look of status --watch. Unknown is nil.
type watchLook struct {
	at      time.Time
	stream  *uint64 // its last sequence
	lag     *float64
	bytes   *int64
	flushed *int64
	safe    *int64
}

// statusWatch is the memory of status --watch: what it saw, oldest first.
type statusWatch struct {
	q     statusQuestion
	out   io.Writer
	every time.Duration
	looks []watchLook
}

// maxLooks is as many as a wide terminal can draw.
const maxLooks = 300

func (a *app) watchStatus(ctx context.Context, q statusQuestion, every time.Duration) error {
	if a.ownsProcess {
		var stop func()
		ctx, stop = withSignals(ctx, exitNow)
		defer stop()
	}
	w := &statusWatch{q: q, out: a.stdout, every: every}
	w.q.rates = w.rates
	file, is := a.stdout.(*os.File)
	if !is || q.json || !term.IsTerminal(int(file.Fd())) {
		return w.run(ctx, w.writeLine)
	}
	screen := &screen{out: a.stdout, size: func() (int, int, error) { return term.GetSize(int(file.Fd())) }}
	if err := screen.open(); err != nil {
		return err
	}
	defer screen.close()
	return w.run(ctx, func(r *statusReport, s *slot.State) error {
		width, height := screen.dimensions()
		var b bytes.Buffer
		if err := w.draw(&b, r, s, width); err != nil {
			return err
		}
		return screen.show(b.String(), width, height)
	})
}

// run looks and shows until ctx ends: that is no error.
func (w *statusWatch) run(ctx context.Context, show func(*statusReport, *slot.State) error) error {
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for {
		report, state, _ := w.q.look(ctx) // what could not be asked is in the report
		if ctx.Err() != nil {
			return nil
		}
		w.remember(report, state)
		if err := show(report, state); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (w *statusWatch) remember(r *statusReport, s *slot.State) {
	look := watchLookOf(s)
	look.lag, look.bytes = r.Lag.Seconds, r.Lag.Bytes
	if r.Stream != nil {
		look.stream = &r.Stream.LastSequence
	}
	if len(w.looks) == maxLooks {
		w.looks = append(w.looks[:0], w.looks[1:]...)
	}
	w.looks = append(w.looks, look)
}

func watchLookOf(s *slot.State) watchLook {
	look := watchLook{at: time.Now()}
	if s == nil {
		return look
	}
	look.at = s.At
	if s.FlushLSN != nil {
		end := int64(*s.FlushLSN)
		look.flushed = &end
	}
	if s.Slot != nil {
		look.safe = s.Slot.SafeWALBytes
	}
	return look
}

// rates returns the rates between an earlier look and this one.
func (w *statusWatch) rates(s slot.State) walRates {
	samples := make([]sample, 0, len(w.looks)+1)
	for _, l := range append(w.looks[:len(w.looks):len(w.looks)], watchLookOf(&s)) {
		if l.flushed != nil {
			samples = append(samples, sample{lookedAt: l.at, flushed: l.flushed, Safe: l.safe})
		}
	}
	return ratesOf(samples)
}

// storedRates are the events stored a second between two looks, oldest first; nil where a look or its stream is missing.
func (w *statusWatch) storedRates() []*float64 {
	var all []*float64
	for i := 1; i < len(w.looks); i++ {
		before, now := w.looks[i-1], w.looks[i]
		var rate *float64
		if gone := now.at.Sub(before.at).Seconds(); before.stream != nil && now.stream != nil && *now.stream >= *before.stream && gone > 0 {
			r := float64(*now.stream-*before.stream) / gone
			rate = &r
		}
		all = append(all, rate)
	}
	return all
}

// lags are the lags in seconds, if they were known at any look, else in bytes.
func (w *statusWatch) lags() (values []*float64, write func(float64) string) {
	inSeconds := false
	for _, l := range w.looks {
		values = append(values, l.lag)
		inSeconds = inSeconds || l.lag != nil
	}
	if inSeconds {
		return values, shortSpan
	}
	values = values[:0]
	for _, l := range w.looks {
		var v *float64
		if l.bytes != nil {
			n := float64(*l.bytes)
			v = &n
		}
		values = append(values, v)
	}
	return values, func(n float64) string { return size(int64(n)) }
}

// draw writes one screen: the status, and how rate and lag went.
func (w *statusWatch) draw(b *bytes.Buffer, r *statusReport, s *slot.State, width int) error {
	if err := printStatus(b, w.q.common, r, s); err != nil {
		return err
	}
	b.WriteByte('\n')
	lags, writeLag := w.lags()
	drawSeries(b, "stored/s", w.storedRates(), perSecond, width)
	drawSeries(b, "lag", lags, writeLag, width)
	fmt.Fprintf(b, "\n  %s, every %s; Ctrl-C ends\n", time.Now().Format("15:04:05"), w.every)
	return nil
}

// drawSeries writes the newest values as bars, and the last and largest in figures.
func drawSeries(b *bytes.Buffer, name string, values []*float64, write func(float64) string, width int) {
	const besides = 40
	values = values[max(0, len(values)-max(10, width-besides)):]
	last, most := unknown, 0.0
	for _, v := range values {
		last = unknown
		if v != nil {
			last, most = write(*v), max(most, *v)
		}
	}
	fmt.Fprintf(b, "  %-12s %-10s %s  most %s\n", name, last, sparkline(values, most), write(most))
}

// sparkline draws values as bars of eight heights; a dot is nothing, a blank is unknown.
func sparkline(values []*float64, most float64) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	b := &strings.Builder{}
	for _, v := range values {
		switch {
		case v == nil:
			b.WriteRune(' ')
		case *v <= 0 || most <= 0:
			b.WriteRune('·')
		default:
			b.WriteRune(bars[min(int(*v/most*float64(len(bars))), len(bars)-1)])
		}
	}
	return b.String()
}

// writeLine is for a file or a pipe: a look is a line.
func (w *statusWatch) writeLine(r *statusReport, _ *slot.State) error {
	if w.q.json {
		encoder := json.NewEncoder(w.out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(r)
	}
	rate := unknown
	if all := w.storedRates(); len(all) > 0 && all[len(all)-1] != nil {
		rate = perSecond(*all[len(all)-1])
	}
	held, why := unknown, ""
	if r.Slot != nil && r.Slot.RetainedBytes != nil {
		held = size(*r.Slot.RetainedBytes)
	}
	for _, reason := range r.Reasons {
		if reason.severity != note {
			why += "  " + reason.Code
		}
	}
	_, err := fmt.Fprintf(w.out, "%s  %-6s  waiting %s, lag %s, stored/s %s, WAL held %s%s\n",
		time.Now().Format(time.RFC3339), r.Verdict, pendingText(r), lagText(r), rate, held, why)
	return err
}

// screen is a terminal that is written anew from its top.
type screen struct {
	out  io.Writer
	size func() (width, height int, err error)
}

func (s *screen) open() error {
	_, err := io.WriteString(s.out, "\x1b[?1049h\x1b[?25l") // another page, no cursor
	return err
}

func (s *screen) close() { _, _ = io.WriteString(s.out, "\x1b[?25h\x1b[?1049l") }

func (s *screen) dimensions() (width, height int) {
	width, height, err := s.size()
	if err != nil || width < 20 || height < 2 {
		return 80, 24
	}
	return width, height
}

// show writes as much of the text as there is room for.
func (s *screen) show(text string, width, height int) error {
	b := &strings.Builder{}
	b.WriteString("\x1b[H")
	lines := folded(text, width)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err := io.WriteString(s.out, b.String())
	return err
}

// folded returns the lines of a text, those that are too long in pieces.
func folded(text string, width int) []string {
	var all []string
	for line := range strings.Lines(text) {
		runes := []rune(strings.TrimSuffix(line, "\n"))
		for len(runes) > width {
			all = append(all, string(runes[:width]))
			runes = runes[width:]
		}
		all = append(all, string(runes))
	}
	return all
}
