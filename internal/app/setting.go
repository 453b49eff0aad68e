package app

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// setting is one flag with its environment variables. The library carries its text to us; we parse it, so that a value is
// checked in the same way wherever it came from, and everything that is wrong is known at once.
type setting struct {
	name     string
	env      []string // in order of precedence
	help     string   // a `name` in backquotes stands for the value
	def      string
	category string
	optional bool // an empty text is the same as none
	secret   bool // the value is never shown
	bool     bool
	repeat   bool // may be given several times; in the environment with commas between

	given []string // from the command line
}

// Set is called by the flag library.
func (s *setting) Set(value string) error {
	s.given = append(s.given, value)
	return nil
}

// String is what the flag library shows as the default.
func (s *setting) String() string { return "" }

// IsBoolFlag tells the flag library that the flag can stand without a value.
func (s *setting) IsBoolFlag() bool { return s != nil && s.bool }

// settingFlag shows a setting on one command. A setting that several commands show is one setting: it does not matter
// before or after which of them the flag stands.
type settingFlag struct {
	*setting
	hidden bool // accepted, but not in the command's help
}

// Apply, Names and IsSet make it a flag of the library.
func (f *settingFlag) Apply(set *flag.FlagSet) error {
	set.Var(f.setting, f.name, f.help)
	return nil
}

// Names returns the flag's only name.
func (f *settingFlag) Names() []string { return []string{f.name} }

// IsSet says whether the command line has the flag.
func (f *settingFlag) IsSet() bool { return len(f.given) > 0 }

// reader turns settings into values. It goes on after a complaint, so that all of them can be reported.
type reader struct {
	env        map[string]string
	sources    map[string]string // setting -> the flag or variable that it came from
	complaints []complaint
}

// raw returns a setting's text and whether anything but the default gave it.
func (r *reader) raw(s *setting) (values []string, given bool) {
	if n := len(s.given); n > 0 {
		r.sources[s.name] = "--" + s.name
		if s.repeat {
			return r.nonEmpty(s, "--"+s.name, s.given)
		}
		return r.nonEmpty(s, "--"+s.name, s.given[n-1:]) // the last one counts
	}
	for _, name := range s.env {
		value, ok := r.env[name]
		if !ok || (value == "" && !strings.HasPrefix(name, envPrefix)) {
			continue // other programs' variables may be empty to mean none
		}
		r.sources[s.name] = name
		if s.repeat {
			return r.nonEmpty(s, name, strings.Split(value, ","))
		}
		return r.nonEmpty(s, name, []string{value})
	}
	r.sources[s.name] = "--" + s.name
	return nil, false
}

// none reports whether an optional setting was given, as nothing: that is not the default.
func (r *reader) none(s *setting) bool {
	if len(s.given) > 0 {
		return s.given[len(s.given)-1] == ""
	}
	for _, name := range s.env {
		if value, ok := r.env[name]; ok {
			return value == ""
		}
	}
	return false
}

func (r *reader) nonEmpty(s *setting, source string, values []string) ([]string, bool) {
	if !slices.Contains(values, "") {
		return values, true
	}
	if !s.optional {
		r.complain(complaint{key: source, text: `the value is empty ("")`})
	}
	return nil, false
}

func (r *reader) complain(c complaint) { r.complaints = append(r.complaints, c) }

// wrong complains about a setting's value.
func (r *reader) wrong(s *setting, value, text string) {
	if s.secret {
		value = ""
	}
	r.complain(complaint{key: r.sources[s.name], value: value, text: text})
}

func (r *reader) text(s *setting) string {
	values, ok := r.raw(s)
	if !ok {
		return s.def
	}
	return values[len(values)-1]
}

func (r *reader) texts(s *setting) []string {
	values, _ := r.raw(s)
	for i := range values {
		values[i] = strings.TrimSpace(values[i])
	}
	return values
}

func (r *reader) flag(s *setting) bool {
	text := r.text(s)
	if text == "" {
		return false
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		r.wrong(s, text, "want true or false")
	}
	return on
}

func (r *reader) oneOf(s *setting, allowed ...string) string {
	text := r.text(s)
	if !slices.Contains(allowed, text) && text != "" {
		r.wrong(s, text, "want "+strings.Join(allowed[:len(allowed)-1], ", ")+" or "+allowed[len(allowed)-1])
	}
	return text
}

// duration reads a time like 10s or 1m30s of at least least.
func (r *reader) duration(s *setting, least time.Duration) time.Duration {
	text := r.text(s)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		r.wrong(s, text, "want a time with its unit, 10s or 1m30s say")
	case d < least && least <= 1:
		r.wrong(s, text, map[bool]string{true: "want more than 0", false: "must not be negative"}[least > 0])
	case d < least:
		r.wrong(s, text, "want at least "+least.String())
	}
	return d
}

func (r *reader) number(s *setting, least, most int) int {
	text := r.text(s)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		r.wrong(s, text, "want a whole number")
		return 0
	}
	if n < least || n > most {
		r.wrong(s, text, fmt.Sprintf("want a number from %d to %d", least, most))
	}
	return n
}

// bytes reads a size: a number of bytes, or one with a unit like 64MiB.
func (r *reader) bytes(s *setting, least int64) int64 {
	text := r.text(s)
	if text == "" {
		return 0
	}
	n, err := humanize.ParseBytes(text)
	switch {
	case err != nil || n > 1<<50:
		r.wrong(s, text, "want a size in bytes, 67108864 or 64MiB say")
		return 0
	case int64(n) < least:
		r.wrong(s, text, "want at least "+size(least))
	}
	return int64(n)
}
