package app

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// doctorWidth is where a line of doctor's text ends. Lines to type are never broken.
const doctorWidth = 80

// printDoctor writes the report for people: one line a check, by server, with what mends it below.
func printDoctor(w io.Writer, c common, r *doctorReport) error {
	names := 0
	for _, check := range r.Checks {
		names = max(names, len(check.Check))
	}
	b := &strings.Builder{}
	server := ""
	for i, check := range r.Checks {
		if check.Server != server {
			if server != "" {
				b.WriteByte('\n')
			}
			server = check.Server
			b.WriteString(doctorHeading(c, server))
		}
		head := fmt.Sprintf("  %-4s  %-*s  ", doctorMark(check.Status), names, check.Check)
		indent := strings.Repeat(" ", len(head))
		b.WriteString(head + strings.Join(wrap(check.Text, doctorWidth-len(head)), "\n"+indent) + "\n")
		if i+1 < len(r.Checks) && r.Checks[i+1].Fix == check.Fix {
			continue // once is enough
		}
		for _, line := range lines(check.Fix) {
			b.WriteString("        " + typed(line) + "\n")
		}
	}
	b.WriteString("\n" + doctorSummary(r) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func doctorHeading(c common, server string) string {
	if server == onPostgres {
		return fmt.Sprintf("PostgreSQL %s, slot %s, table %s\n", databaseName(c.database), c.slot.Slot, c.slot.Table)
	}
	return fmt.Sprintf("NATS %s, stream %s, subject %s\n", c.nats.Servers(), c.stream, c.subject)
}

// typed marks a line that is to be typed, so that it is not taken for advice.
func typed(line string) string {
	first, _, _ := strings.Cut(line, " ")
	if first == "relay" || first == "nats" || first == "psql" || first == strings.ToUpper(first) {
		return "> " + line
	}
	return line
}

func doctorMark(status string) string {
	switch status {
	case checkFail:
		return "FAIL"
	case checkUnknown:
		return "?"
	}
	return status
}

func doctorSummary(r *doctorReport) string {
	n := map[string]int{}
	for _, check := range r.Checks {
		n[check.Status]++
	}
	parts := []string{fmt.Sprintf("%d ok", n[checkOK])}
	if warn := n[checkWarn]; warn > 0 {
		parts = append(parts, plural(warn, "warning", "warnings"))
	}
	if unknown := n[checkUnknown]; unknown > 0 {
		parts = append(parts, fmt.Sprintf("%d not checked", unknown))
	}
	verdict := "the relay can run"
	if fail := n[checkFail]; fail > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", fail))
		verdict = "mend what failed, then ask again"
	}
	return strings.Join(parts, ", ") + ": " + verdict
}

// wrap breaks a text at blanks into lines of at most width characters; a longer word has a line of its own.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
