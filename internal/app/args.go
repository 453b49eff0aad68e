package app

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/urfave/cli/v2"
)

// complaint is one thing that is wrong with an invocation.
type complaint struct {
	key   string // a flag with its dashes, a variable, or an argument
	value string // "" if there is none, or if it must not be shown
	text  string
	try   string
}

func (c complaint) Error() string {
	switch {
	case c.key == "":
		return c.text
	case c.value == "":
		return c.key + ": " + c.text
	}
	return fmt.Sprintf("%s %q: %s", c.key, c.value, c.text)
}

// scan holds the arguments against the tree of commands. It returns the arguments without what was complained about, so
// that the rest can be checked too. The library would stop at the first unknown flag, and take extra arguments in silence.
type scan struct {
	command    *cli.Command // the deepest one named so far
	path       string       // "relay slot create"
	help       bool
	unknown    bool // a command that does not exist was named: what follows cannot be judged
	clean      []string
	complaints []complaint
}

func scanArgs(root *cli.Command, args []string) *scan {
	s := &scan{command: root, path: root.Name}
	if len(args) > 0 {
		s.clean, args = append(s.clean, args[0]), args[1:]
	}
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	if len(args) == 1 && (args[0] == "--version" || args[0] == "-v") {
		args = []string{"version"}
	}
	for len(args) > 0 && !s.unknown {
		args = s.next(args[0], args[1:])
	}
	return s
}

func (s *scan) next(arg string, rest []string) []string {
	switch {
	case arg == "--" || arg == "-":
		s.complain(complaint{key: arg, text: fmt.Sprintf("%q takes no arguments", s.path)})
		return rest
	case strings.HasPrefix(arg, "-"):
		return s.flag(arg, rest)
	case len(s.command.Subcommands) > 0:
		s.descend(arg)
		return rest
	}
	c := complaint{key: "argument", value: arg, text: fmt.Sprintf("%q takes no arguments", s.path)}
	if strings.Contains(arg, "://") || strings.Contains(arg, "=") {
		c.key, c.value = "an argument that looks like a URL or a setting (not shown, it may hold a secret)", ""
	}
	s.complain(c)
	return rest
}

func (s *scan) descend(name string) {
	if sub := s.command.Command(name); sub != nil {
		s.command, s.path = sub, s.path+" "+name
		s.clean = append(s.clean, name)
		return
	}
	var names []string
	for _, sub := range s.command.Subcommands {
		names = append(names, sub.Name)
	}
	_, below, _ := strings.Cut(s.path+" "+name, " ")
	c := complaint{text: fmt.Sprintf("there is no command %q", below), try: s.path + " --help"}
	if near := nearest(name, names); near != "" {
		c.try = s.path + " " + near
	}
	s.unknown = true
	s.complain(c)
}

func (s *scan) flag(arg string, rest []string) []string {
	name, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	if name == "help" || name == "h" {
		s.help = true
		return rest
	}
	f, ok := s.find(name)
	switch {
	case !ok:
		s.unknownFlag(name)
		if !hasValue && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && s.command.Command(rest[0]) == nil {
			rest = rest[1:] // most likely its value
		}
		return rest
	case f.bool:
		if _, err := strconv.ParseBool(value); hasValue && err != nil {
			s.complain(complaint{key: "--" + name, value: value, text: "want true or false"})
			return rest
		}
		s.clean = append(s.clean, arg)
		return rest
	case hasValue:
		s.clean = append(s.clean, arg)
		return rest
	case len(rest) == 0 || s.isFlag(rest[0]):
		s.complain(complaint{key: "--" + name, text: "a value is missing"})
		return rest
	}
	s.clean = append(s.clean, "--"+name+"="+rest[0])
	return rest[1:]
}

// isFlag says that an argument is one of the command's flags, and so not the value of the flag before it. A value may
// well begin with a dash: a number, a password.
func (s *scan) isFlag(arg string) bool {
	trimmed, ok := strings.CutPrefix(arg, "--")
	if !ok {
		return false
	}
	name, _, _ := strings.Cut(trimmed, "=")
	_, known := s.find(name)
	return known || name == "help"
}

func (s *scan) find(name string) (*settingFlag, bool) {
	for _, f := range s.command.Flags {
		if own, ok := f.(*settingFlag); ok && own.name == name {
			return own, true
		}
	}
	return nil, false
}

func (s *scan) unknownFlag(name string) {
	var names []string
	for _, f := range s.command.Flags {
		names = append(names, f.Names()[0])
	}
	c := complaint{key: "--" + name, text: fmt.Sprintf("%q has no such flag", s.path)}
	if near := nearest(name, names); near != "" {
		c.text += ", did you mean --" + near + "?"
	} else {
		c.try = s.path + " --help"
	}
	s.complain(c)
}

func (s *scan) complain(c complaint) { s.complaints = append(s.complaints, c) }

// nearest returns the candidate that a typing error most likely meant, or "".
func nearest(word string, candidates []string) string {
	best, distance := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		if d := levenshtein.ComputeDistance(strings.ToLower(word), strings.ToLower(c)); d < distance {
			best, distance = c, d
		}
	}
	return best
}
