// Command demo shows the transactional outbox with relay, whole and in one go: an order service that writes orders and events, a
// relay that is killed at the worst moment, a second one that takes over, a shipping service that is killed, too, and ships each
// order once, and the balance. The two services are those of examples/orders.
//
//	go run ./demo
//
// The servers are throwaway ones (internal/sandbox). The relay is the code of the binary: its set-up commands run in this
// process, `relay run` and the shipping service in child processes that are this executable again. See run.go for the plot.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/internal/app"
	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1 // something was lost, doubled or reordered, or the demo could not be played to its end
	exitUsage       = 2
	exitInterrupted = 130 // as a shell says it of SIGINT
)

const (
	childEnv      = "RELAY_DEMO_CHILD" // what this executable is, when the demo started it
	childRelay    = "relay"
	childShipping = "shipping"
)

func main() {
	os.Exit(program(os.Args, os.Stdout, os.Stderr))
}

// program is main with its surroundings handed in. In a child process of the demo it is the relay, or a server.
func program(args []string, stdout, stderr io.Writer) int {
	sandbox.Main()
	if err := forgetSettings(); err != nil {
		_, _ = fmt.Fprintf(stderr, "demo: %v\n", err)
		return exitFailed
	}
	switch os.Getenv(childEnv) {
	case childRelay:
		return app.Main(append([]string{"relay"}, args[1:]...), stdout, stderr, nil)
	case childShipping:
		return runShipping(args[1:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	return command(ctx, args, stdout, stderr)
}

// forgetSettings takes away libpq's variables: the drivers read them, and the demo speaks to its own servers only.
func forgetSettings() error {
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "PG") {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// usageError is what the person typed wrong.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

const (
	maxEvents       = 1_000_000
	minEventsOfStep = 50
)

// command parses the flags, plays the demo and says how it went.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var opts options
	cmd := &cli.App{
		Name: "demo", HelpName: "go run ./demo", UsageText: "go run ./demo [--events N] [--crash STEP] [--json] [--keep]",
		Usage: "orders, events and a relay that is killed at the worst moment; throwaway servers, nothing is left behind",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "events", Value: 2000, Usage: "`number` of events that are committed", Destination: &opts.events},
			&cli.StringFlag{
				Name: "crash", Value: defaultStep, Destination: &opts.crash,
				Usage: "the `step` at which a relay is killed, along the path of an event: " + stepNames(),
			},
			&cli.BoolFlag{Name: "json", Usage: "the balance as one JSON object on stdout; the story goes to stderr", Destination: &opts.json},
			&cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show this"}, // the library's own is a global variable
			&cli.BoolFlag{Name: "keep", Usage: "afterwards keep everything running until Ctrl-C, and say how to look at it", Destination: &opts.keep},
		},
		Writer: stdout, ErrWriter: stderr, HideVersion: true, HideHelp: true,
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   func(_ *cli.Context, err error, _ bool) error { return &usageError{text: err.Error()} },
		Action: func(c *cli.Context) error {
			switch {
			case c.Bool("help"):
				return cli.ShowAppHelp(c)
			case c.NArg() > 0:
				return &usageError{text: fmt.Sprintf("unexpected argument %q", c.Args().First())}
			case opts.events < 1 || opts.events > maxEvents:
				return &usageError{text: fmt.Sprintf("--events %d: want a number from 1 to %d", opts.events, maxEvents)}
			case opts.crash != defaultStep && opts.events < minEventsOfStep:
				return &usageError{text: fmt.Sprintf("--events %d: want at least %d to show --crash %s", opts.events, minEventsOfStep, opts.crash)}
			}
			return play(c.Context, opts, stdout, stderr)
		},
	}
	return report(ctx, stderr, cmd.RunContext(ctx, args))
}

// report prints an error as a person reads it and returns the exit code.
func report(ctx context.Context, stderr io.Writer, err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(stderr, "demo: %v\n  try: go run ./demo --help\n", err)
		return exitUsage
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(stderr, "demo: interrupted; servers, processes and folders are removed")
		return exitInterrupted
	case errors.Is(err, sandbox.ErrNoPostgres):
		_, _ = fmt.Fprintf(stderr, "demo: %s\n"+
			"  the demo needs a PostgreSQL server program, 14 to 18: install one (apt install postgresql, brew install postgresql@17),\n"+
			"  or name the folder with initdb and postgres: RELAY_SANDBOX_POSTGRES=/usr/lib/postgresql/17/bin go run ./demo\n", oneLine(err))
	case !errors.Is(err, errBalance): // the balance has said it
		_, _ = fmt.Fprintf(stderr, "demo: %v\n", err)
	}
	return exitFailed
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
