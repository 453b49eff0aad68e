// Command chaos shows that relay loses, doubles and reorders nothing, whatever dies: real relays, a real PostgreSQL and a real
// JetStream, concurrent writers, and faults at random moments.
//
//	go run ./test/chaos --seconds 60
//
// The seed fixes the sequence of faults and their pauses. At the end the stream is held against the order of the commits,
// which a replication slot of chaos' own has kept.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/internal/app"
	"github.com/seed-1cfd9858/relay/internal/sandbox"
	"github.com/seed-1cfd9858/relay/test/mutant"
)

const (
	childEnv  = "RELAY_CHAOS_CHILD" // what this executable is, when chaos started it
	childKind = "relay"

	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(program(os.Args, os.Stdout, os.Stderr))
}

// program is main with its surroundings handed in. In a child process of chaos it is the relay, or a server.
func program(args []string, stdout, stderr io.Writer) int {
	sandbox.Main()
	if os.Getenv(childEnv) == childKind {
		return app.Main(append([]string{"relay"}, args[1:]...), stdout, stderr, nil)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return command(ctx, args, stdout, stderr)
}

// options is what the flags say.
type options struct {
	seconds int
	seed    uint64
	every   time.Duration
	rate    int
	json    bool
	relay   string
	mutant  string
	mutants bool
	only    string
	logs    string
	cluster bool
	foreign bool
	purge   bool
}

var errUsage = errors.New("see: go run ./test/chaos --help")

func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var opts options
	cmd := &cli.App{
		Name: "chaos", HelpName: "go run ./test/chaos", UsageText: "go run ./test/chaos [--seconds N] [--seed S] [--every D] [--rate N] [--cluster] [--foreign] [--purge] [--only TEXT] [--relay PATH | --mutant NAME | --mutants] [--json]",
		Usage: "kill, freeze, cut and fill everything around a relay, and look whether an event is lost, doubled or out of order",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "seconds", Value: 60, Usage: "`number` of seconds with faults", Destination: &opts.seconds},
			&cli.Uint64Flag{Name: "seed", Usage: "`number` that fixes the sequence of faults; 0 = a fresh one", Destination: &opts.seed},
			&cli.DurationFlag{Name: "every", Value: 2 * time.Second, Usage: "mean `time` between two faults", Destination: &opts.every},
			&cli.IntFlag{Name: "rate", Value: 500, Usage: "`number` of events that are written in a second", Destination: &opts.rate},
			&cli.StringFlag{Name: "only", Usage: "only faults whose name holds this `text`", Destination: &opts.only},
			&cli.StringFlag{Name: "relay", Usage: "`path` of the program that is run as relay; default: the relay in this program", Destination: &opts.relay},
			&cli.StringFlag{Name: "mutant", Usage: "the `name` of a deliberate fault (" + mutant.Folder + ") that is put into the relays: does a check see it?", Destination: &opts.mutant},
			&cli.BoolFlag{Name: "mutants", Usage: "play a short script for each of some mutants, and show which check sees it", Destination: &opts.mutants},
			&cli.StringFlag{Name: "logs", Usage: "`folder` for the relays' logs, which stay there after a failure; default: the system's", Destination: &opts.logs},
			&cli.BoolFlag{Name: "cluster", Usage: "three NATS servers that hold the stream together", Destination: &opts.cluster},
			&cli.BoolFlag{Name: "foreign", Usage: "somebody else writes into the stream: order may suffer, and a relay must say so", Destination: &opts.foreign},
			&cli.BoolFlag{Name: "purge", Usage: "another scenario: what is stored and not confirmed is purged", Destination: &opts.purge},
			&cli.BoolFlag{Name: "json", Usage: "the result as one JSON object on stdout; the story goes to stderr", Destination: &opts.json},
			&cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show this"},
		},
		Writer: stdout, ErrWriter: stderr, HideVersion: true, HideHelp: true,
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   func(_ *cli.Context, err error, _ bool) error { return errors.Join(err, errUsage) },
		Action: func(c *cli.Context) error {
			switch {
			case c.Bool("help"):
				return cli.ShowAppHelp(c)
			case c.NArg() > 0:
				return errors.Join(fmt.Errorf("unexpected argument %q", c.Args().First()), errUsage)
			case opts.seconds < 1 || opts.rate < 1 || opts.every <= 0:
				return errors.Join(errors.New("--seconds, --rate and --every want a positive number"), errUsage)
			case opts.relay != "" && opts.mutant != "" || opts.mutants && (opts.relay != "" || opts.mutant != "" || opts.only != ""):
				return errors.Join(errors.New("--relay, --mutant and --mutants exclude each other, and --mutants has faults of its own"), errUsage)
			case len(opts.faults()) == 0:
				return errors.Join(fmt.Errorf("--only %q: no fault has that in its name", opts.only), errUsage)
			}
			if opts.seed == 0 {
				opts.seed = rand.Uint64() //nolint:gosec // any will do
			}
			out := stdout
			if opts.json {
				out = stderr
			}
			if opts.mutants {
				return playScripts(c.Context, opts, out)
			}
			result, err := wreak(c.Context, opts, out)
			if err != nil {
				return err
			}
			result.tell(out)
			if opts.json {
				if err := json.NewEncoder(stdout).Encode(result); err != nil {
					return err
				}
			}
			return result.verdict()
		},
	}
	err := cmd.RunContext(ctx, args)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		_, _ = fmt.Fprintf(stderr, "chaos: %v\n", err)
		return exitUsage
	}
	_, _ = fmt.Fprintf(stderr, "chaos: %v\n", err)
	return exitFailed
}
