package app

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
)

// printHelp writes what a command does, the commands below it and its flags by category, each with its variable.
func printHelp(w io.Writer, path string, c *cli.Command) {
	_, _ = fmt.Fprintf(w, "%s: %s\n", path, c.Usage)
	if len(c.Subcommands) > 0 {
		_, _ = fmt.Fprintf(w, "\n%s COMMAND [flags]\n\nCommands:\n", path)
		table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		for _, sub := range c.Subcommands {
			if len(sub.Subcommands) == 0 {
				_, _ = fmt.Fprintf(table, "  %s\t%s\n", sub.Name, sub.Usage)
			}
			for _, leaf := range sub.Subcommands {
				_, _ = fmt.Fprintf(table, "  %s %s\t%s\n", sub.Name, leaf.Name, leaf.Usage)
			}
		}
		_ = table.Flush()
		_, _ = fmt.Fprintf(w, "\n%s COMMAND --help shows a command's flags. Each flag has a variable; flags win.\n", path)
		return
	}
	_, _ = fmt.Fprintf(w, "\n%s [flags]\n", path)
	var categories []string
	for _, f := range c.Flags {
		if own, ok := f.(*settingFlag); ok && !own.hidden && !slices.Contains(categories, own.category) {
			categories = append(categories, own.category)
		}
	}
	for _, category := range categories {
		heading := category
		if heading == "" {
			heading = "Flags:"
		}
		_, _ = fmt.Fprintf(w, "\n%s\n", heading)
		for _, f := range c.Flags {
			if own, ok := f.(*settingFlag); ok && !own.hidden && own.category == category {
				own.print(w)
			}
		}
	}
}

// print writes one flag on two lines.
func (s *setting) print(w io.Writer) {
	value, help := "", s.help
	if before, rest, ok := strings.Cut(s.help, "`"); ok {
		name, after, _ := strings.Cut(rest, "`")
		value, help = " "+strings.ToUpper(name), before+name+after
	}
	if s.bool {
		value = ""
	}
	_, _ = fmt.Fprintf(w, "  --%s%s", s.name, value)
	var notes []string
	if s.def != "" {
		notes = append(notes, "default "+s.def)
	}
	if len(s.env) > 0 {
		notes = append(notes, "$"+strings.Join(s.env, ", $"))
	}
	if len(notes) > 0 {
		_, _ = fmt.Fprintf(w, "  (%s)", strings.Join(notes, "; "))
	}
	_, _ = fmt.Fprintf(w, "\n        %s\n", help)
}
