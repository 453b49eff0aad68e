package app

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"
)

// Main runs the program with the arguments (the first is its own name) and returns its exit code. stdout gets the answer,
// stderr the log and the errors; environ is as of os.Environ.
func Main(args []string, stdout, stderr io.Writer, environ []string) int {
	return start(context.Background(), args, stdout, stderr, environ, true)
}

// Run is Main under a context: when it ends, a command stops as it does at a signal. Invocations do not share anything, so
// that a test can run several at a time.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer, environ []string) int {
	return start(ctx, args, stdout, stderr, environ, false)
}

func start(ctx context.Context, args []string, stdout, stderr io.Writer, environ []string, ownsProcess bool) int {
	a := &app{
		stdout: stdout, stderr: stderr, shared: newSharedSettings(), ownsProcess: ownsProcess,
		reader: &reader{env: parseEnviron(environ), sources: map[string]string{}},
	}
	return report(stderr, a.run(ctx, args))
}

// app is one invocation.
type app struct {
	stdout, stderr io.Writer
	ownsProcess    bool // settings of the whole process are this invocation's to make
	shared         *sharedSettings
	reader         *reader
	own            []*setting // of all commands, for the names of their variables
	path           string     // of the command that runs: "relay slot create"
}

func (a *app) run(ctx context.Context, args []string) error {
	root := a.tree()
	s := scanArgs(root, args)
	a.path, a.reader.complaints = s.path, s.complaints
	switch {
	case s.unknown:
		return usage(s.complaints)
	case s.help:
		return a.help(s.command)
	case len(s.command.Subcommands) > 0:
		return a.commandMissing(s)
	}
	return a.library(root).RunContext(ctx, s.clean)
}

// library wraps the tree for the flag library. Its own words, exits and help are turned off.
func (a *app) library(root *cli.Command) *cli.App {
	return &cli.App{
		Name: root.Name, HelpName: root.Name, Flags: root.Flags, Commands: root.Subcommands,
		Writer: a.stdout, ErrWriter: a.stderr, HideHelp: true, HideVersion: true, DisableSliceFlagSeparator: true,
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError: func(_ *cli.Context, err error, _ bool) error {
			return usage([]complaint{{text: err.Error()}})
		},
	}
}

func (a *app) tree() *cli.Command {
	root := &cli.Command{
		Name:  "relay",
		Usage: "store the events of a transactional outbox in NATS JetStream, in order and without loss",
		Flags: a.shared.flags(0),
		Subcommands: []*cli.Command{
			a.runCommand(), a.statusCommand(), a.doctorCommand(), a.tailCommand(), a.outboxCommand(), a.slotCommand(), a.streamCommand(),
			a.completionCommand(), a.versionCommand(),
		},
	}
	return root
}

// command makes one that does something. It shows and reads the shared settings of groups, and its own.
func (a *app) command(name, usageText string, groups group, own []*setting, action func(ctx context.Context, c common) error) *cli.Command {
	a.own = append(a.own, own...)
	flags := make([]cli.Flag, 0, len(own))
	for _, s := range own {
		flags = append(flags, &settingFlag{setting: s})
	}
	return &cli.Command{
		Name: name, Usage: usageText, Flags: append(flags, a.shared.flags(groups|groupLog)...),
		HideHelp: true, HideHelpCommand: true,
		OnUsageError: func(_ *cli.Context, err error, _ bool) error {
			return usage([]complaint{{text: err.Error()}})
		},
		Action: func(c *cli.Context) error {
			level := a.reader.oneOf(a.shared.logLevel, "debug", "info", "warn", "error")
			format := a.reader.oneOf(a.shared.logFormat, "text", "json")
			log := newLogger(a.stderr, level, format)
			warnUnknown(log, a.reader.env, a.envNames())
			common := a.shared.read(a.reader, groups)
			common.log = log
			return action(c.Context, common)
		},
	}
}

// family makes a command that only has others below it.
func (a *app) family(name, usageText string, members ...*cli.Command) *cli.Command {
	return &cli.Command{Name: name, Usage: usageText, Flags: a.shared.flags(0), Subcommands: members, HideHelp: true, HideHelpCommand: true}
}

// checked returns the usage error of everything that was wrong so far. An action calls it when it has read its settings,
// before it connects to anything.
func (a *app) checked() error { return usage(a.reader.complaints) }

func (a *app) envNames() []string {
	names := a.shared.envNames()
	for _, s := range a.own {
		names = append(names, s.env...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (a *app) commandMissing(s *scan) error {
	if err := usage(s.complaints); err != nil {
		return err
	}
	printHelp(a.stderr, s.path, s.command)
	return &exitError{code: exitUsage, err: fmt.Errorf("a command is missing after %q", s.path)}
}

func (a *app) help(c *cli.Command) error {
	printHelp(a.stdout, a.path, c)
	return nil
}
