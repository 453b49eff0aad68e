package app

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Exit codes. They are part of the program's interface.
const (
	exitOK      = 0
	exitFailed  = 1 // failed; a second signal; a question that could not be asked
	exitUsage   = 2 // usage or configuration
	exitVerdict = 3 // status, doctor: the verdict is not ok
	exitPoison  = 4 // run: halted at a poison event
	exitSlot    = 5 // run: slot lost, missing, or of another plugin or database
	exitTable   = 6 // run: table or publication unfit
)

// exitError is an error with its exit code and the line that may help. Any other error exits 1.
type exitError struct {
	code  int
	err   error  // nil: everything is said already
	try   string // a line to type, or what to do; "" if there is none
	quiet bool   // the answer on stdout says it all
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// failed makes an error of exit code 1 with advice.
func failed(err error, try string) error { return &exitError{code: exitFailed, err: err, try: try} }

// usage makes one error of exit code 2 of all complaints; nil if there are none.
func usage(complaints []complaint) error {
	if len(complaints) == 0 {
		return nil
	}
	errs := make([]error, len(complaints))
	for i, c := range complaints {
		errs[i] = c
	}
	return &exitError{code: exitUsage, err: errors.Join(errs...)}
}

// report prints the error as the operator reads it and returns its exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	e, ok := errors.AsType[*exitError](err)
	if !ok {
		e = &exitError{code: exitFailed, err: err}
	}
	if e.quiet || e.err == nil {
		return e.code
	}
	var told string // the same advice twice in a row is given once, at the end
	for _, err := range unjoin(e.err) {
		c, _ := errors.AsType[complaint](err)
		if c.try != told {
			printTry(w, told)
		}
		told = c.try
		_, _ = fmt.Fprintf(w, "relay: %s\n", oneLine(err.Error()))
	}
	printTry(w, told)
	printTry(w, e.try)
	return e.code
}

// printTry writes what may help: a line to type is marked as one.
func printTry(w io.Writer, try string) {
	for _, line := range lines(try) {
		mark := ""
		if first, _, _ := strings.Cut(line, " "); first == "relay" || first == "nats" || first == strings.ToUpper(first) {
			mark = "try: "
		}
		_, _ = fmt.Fprintf(w, "  %s%s\n", mark, line)
	}
}

// lines returns the lines of an advice, each once.
func lines(try string) []string {
	var all []string
	for line := range strings.Lines(try) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return all
}

// restated says an error in the operator's words and keeps what it is.
type restated struct {
	text string
	err  error
}

func (e *restated) Error() string { return e.text }

func (e *restated) Unwrap() error { return e.err }

// unjoin returns the members of errors.Join, of any depth, in order. An error that wraps several in a sentence of its own
// is one error.
func unjoin(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	var texts []string
	for _, e := range joined.Unwrap() {
		all, texts = append(all, unjoin(e)...), append(texts, e.Error())
	}
	if err.Error() != strings.Join(texts, "\n") {
		return []error{err}
	}
	return all
}

// oneLine keeps an error on its line: the parts of a multi-line one are joined.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
