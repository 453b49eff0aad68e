package app

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
)

// printJSON writes v as programs read it: one document, indented, one line feed at its end.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// size writes a number of bytes for people: 1.2 MiB.
func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// count writes a number for people: 1 204 331.
func count(n uint64) string { return humanize.FormatInteger("# ###.", int(min(n, 1<<62))) }

// span writes a duration for people: 0.4 s, 42 s, 3 h 12 m, 2 d 4 h.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", max(d, 0).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return twoUnits(int(d.Seconds()), 60, "m", "s")
	case d < 24*time.Hour:
		return twoUnits(int(d.Minutes()), 60, "h", "m")
	}
	return twoUnits(int(d.Hours()), 24, "d", "h")
}

func twoUnits(n, base int, large, small string) string {
	if n%base == 0 {
		return fmt.Sprintf("%d %s", n/base, large)
	}
	return fmt.Sprintf("%d %s %d %s", n/base, large, n%base, small)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(uint64(max(n, 0))) + " " + many
}
