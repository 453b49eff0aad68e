package app

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

func (a *app) completionCommand() *cli.Command {
	shell := func(name, where string, print func(io.Writer, *cli.Command) error) *cli.Command {
		return a.command(name, "print the script for "+name+": "+where, 0, nil, func(context.Context, common) error {
			if err := a.checked(); err != nil {
				return err
			}
			return print(a.stdout, a.tree())
		})
	}
	return a.family("completion", "print what makes a shell complete relay's commands and flags",
		shell("bash", "source <(relay completion bash)", printBash),
		shell("zsh", "source <(relay completion zsh)", printZsh),
		shell("fish", "relay completion fish | source", printFish))
}

// place is a command in the tree and what may follow it.
type place struct {
	path  []string // "slot", "create"; none for relay itself
	words []*cli.Command
	flags []*settingFlag
}

// places lists a command and everything below it.
func places(c *cli.Command, path []string) []place {
	p := place{path: path, words: c.Subcommands}
	if len(c.Subcommands) == 0 {
		for _, f := range c.Flags {
			if own, is := f.(*settingFlag); is && !own.hidden {
				p.flags = append(p.flags, own)
			}
		}
	}
	all := []place{p}
	for _, sub := range c.Subcommands {
		all = append(all, places(sub, append(path[:len(path):len(path)], sub.Name))...)
	}
	return all
}

// candidates are the words that may follow, space between.
func (p place) candidates() string {
	var words []string
	for _, c := range p.words {
		words = append(words, c.Name)
	}
	for _, f := range p.flags {
		words = append(words, "--"+f.name)
	}
	return strings.Join(append(words, "--help"), " ")
}

// valued returns the flags of all commands that take a value, for the script to skip it.
func valued(all []place, prefix, between string) string {
	var flags []string
	seen := map[string]bool{}
	for _, p := range all {
		for _, f := range p.flags {
			if !f.bool && !seen[f.name] {
				seen[f.name] = true
				flags = append(flags, prefix+f.name)
			}
		}
	}
	return strings.Join(flags, between)
}

// choices are the values of flags that have few.
func choices() map[string]string {
	return map[string]string{
		"log-level": "debug info warn error", "log-format": "text json", "payload-type": "jsonb json text bytea", "on-poison": "halt",
		"partition-by": "day",
	}
}

// printBash writes a function that finds the command among the words before the cursor. What it does not know, a file say,
// is left to bash.
func printBash(w io.Writer, root *cli.Command) error {
	all := places(root, nil)
	b := &strings.Builder{}
	b.WriteString(`# bash completion for relay; source it, or put it into ~/.local/share/bash-completion/completions/relay
_relay() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= words= i
  COMPREPLY=()
  [[ $cur == = ]] && cur=
  [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD-2]}
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      ` + valued(all, "--", "|") + `)
        ((i++)); [[ ${COMP_WORDS[i]} == = ]] && ((i++)) ;;
      -*) ;;
      *) path="$path ${COMP_WORDS[i]}" ;;
    esac
  done
  case $prev in
`)
	for _, name := range slices.Sorted(maps.Keys(choices())) {
		fmt.Fprintf(b, "    --%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", name, choices()[name])
	}
	fmt.Fprintf(b, "    %s) return ;;\n  esac\n  case $path in\n", valued(all, "--", "|"))
	for _, p := range all {
		fmt.Fprintf(b, "    '%s') words='%s' ;;\n", joinPath(p.path), p.candidates())
	}
	b.WriteString("  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o bashdefault -o default -F _relay relay\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func joinPath(path []string) string {
	if len(path) == 0 {
		return ""
	}
	return " " + strings.Join(path, " ")
}

// printZsh writes the same for zsh, with a word about each candidate.
func printZsh(w io.Writer, root *cli.Command) error {
	all := places(root, nil)
	b := &strings.Builder{}
	b.WriteString(`#compdef relay
# zsh completion for relay; source it after compinit, or put it as _relay into a folder of $fpath
_relay() {
  local at= i
  local -a found
  for ((i = 2; i < CURRENT; i++)); do
    case ${words[i]} in
      ` + valued(all, "--", "|") + `) ((i++)) ;;
      -*) ;;
      *) at="$at ${words[i]}" ;;
    esac
  done
  case ${words[CURRENT-1]} in
`)
	for _, name := range slices.Sorted(maps.Keys(choices())) {
		fmt.Fprintf(b, "    --%s) compadd -- %s; return ;;\n", name, choices()[name])
	}
	fmt.Fprintf(b, "    %s) _files; return ;;\n  esac\n  case $at in\n", valued(all, "--", "|"))
	for _, p := range all {
		fmt.Fprintf(b, "    '%s') found=(", joinPath(p.path))
		for _, c := range p.words {
			fmt.Fprintf(b, "%s ", quoted(c.Name+":"+c.Usage))
		}
		for _, f := range p.flags {
			fmt.Fprintf(b, "%s ", quoted("--"+f.name+":"+plainHelp(f.setting)))
		}
		b.WriteString("'--help:show help') ;;\n")
	}
	b.WriteString("  esac\n  _describe relay found\n}\n" +
		"if [[ ${funcstack[1]} == _relay ]]; then _relay \"$@\"; else compdef _relay relay; fi\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// printFish writes a rule for each word.
func printFish(w io.Writer, root *cli.Command) error {
	all := places(root, nil)
	b := &strings.Builder{}
	b.WriteString(`# fish completion for relay; put it into ~/.config/fish/completions/relay.fish
function __relay_at
  set -l path
  set -l skip 0
  set -l words (commandline -opc)
  set -e words[1]
  for word in $words
    if test $skip = 1
      set skip 0
    else if contains -- $word ` + valued(all, "--", " ") + `
      set skip 1
    else if not string match -q -- '-*' $word
      set -a path $word
    end
  end
  test "$path" = "$argv[1]"
end
complete -c relay -f
`)
	for _, p := range all {
		at := fmt.Sprintf("complete -c relay -n '__relay_at \"%s\"'", strings.Join(p.path, " "))
		for _, c := range p.words {
			fmt.Fprintf(b, "%s -a %s -d %s\n", at, c.Name, quoted(c.Usage))
		}
		for _, f := range p.flags {
			value := " -r -F"
			switch words := choices()[f.name]; {
			case f.bool:
				value = ""
			case words != "":
				value = " -x -a '" + words + "'"
			}
			fmt.Fprintf(b, "%s -l %s%s -d %s\n", at, f.name, value, quoted(plainHelp(f.setting)))
		}
	}
	b.WriteString("complete -c relay -l help -d 'show help'\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// plainHelp is a flag's help without the marks around its value's name.
func plainHelp(s *setting) string { return strings.ReplaceAll(s.help, "`", "") }

// quoted puts a text between single quotes, which it must not have itself.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "’") + "'" }
