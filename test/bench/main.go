// Command bench measures a relay between a real PostgreSQL and a real JetStream, all on this machine, each a process of
// its own, with fresh data: how fast and at what cost a backlog drains, how long an event takes from commit to the
// stream, what a relay at rest costs, and what happens when transactions, payloads, tables and outages grow.
//
//	go run ./test/bench            all of it
//	go run ./test/bench --quick    without the growth part, in less than a minute
//
// The speed of a machine drifts, so the figures to compare are the ratios inside one run. docs/performance.md has the
// figures of one, and the goals.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/internal/app"
	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

const (
	childEnv   = "RELAY_TEST_CHILD" // what this executable is, when bench started it
	profileEnv = "RELAY_TEST_PROFILE"

	childRelay   = "relay"
	childDecode  = "decode"
	childPublish = "publish"
)

func main() {
	if isChild, code := child(); isChild {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(os.Stdout).RunContext(ctx, os.Args)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// child is what this program does when bench started it; it reports whether that is so.
func child() (is bool, code int) {
	sandbox.Main()
	switch os.Getenv(childEnv) {
	case childRelay:
		return true, relay()
	case childDecode:
		return true, childReport(decodeOnly)
	case childPublish:
		return true, childReport(publishOnly)
	}
	return false, 0
}

// relay is this process as a relay, profiled if that was asked for.
func relay() int {
	if path := os.Getenv(profileEnv); path != "" {
		f, err := os.Create(path)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "profile:", err)
			return 1
		}
		defer pprof.StopCPUProfile()
	}
	return app.Main(append([]string{"relay"}, os.Args[1:]...), os.Stdout, os.Stderr, os.Environ())
}

// config is what to measure.
type config struct {
	events  int // of the backlog
	payload int // bytes
	perTx   int
	headers int           // of each event, besides the relay's
	steady  time.Duration // at each rate
	idle    time.Duration // of each of the two idle parts
	growth  bool
	outage  time.Duration // of the broker, in the growth part

	pg, nats string // the user's own servers; "": throwaway ones
	relay    string // the program; "": this one
	profile  string // of the draining relay
	progress io.Writer
}

func (c config) validate() error {
	if c.events < 1000 || c.perTx < 1 || c.payload < 0 || c.headers < 0 || c.steady < time.Second || c.idle < time.Second {
		return errors.New("want at least 1000 events, 1 of them in a transaction, and parts of at least 1s")
	}
	if c.profile != "" && c.relay != "" {
		return errors.New("--profile is for the relay in this program: leave out --relay")
	}
	return nil
}

func command(out io.Writer) *cli.App {
	cfg := config{progress: os.Stderr}
	var quick, asJSON, markdown bool
	var svg string
	return &cli.App{
		Name: "bench", HelpName: "go run ./test/bench", Usage: "measure a relay", HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "events", Value: 500_000, Usage: "`number` of events in the backlog", Destination: &cfg.events},
			&cli.IntFlag{Name: "payload", Value: 250, Usage: "`bytes` of an event's payload", Destination: &cfg.payload},
			&cli.IntFlag{Name: "per-tx", Value: 10, Usage: "`number` of events in a transaction", Destination: &cfg.perTx},
			&cli.IntFlag{Name: "headers", Usage: "`number` of headers of each event, besides the relay's own", Destination: &cfg.headers},
			&cli.DurationFlag{Name: "steady", Value: 10 * time.Second, Usage: "`time` at each rate of the steady part", Destination: &cfg.steady},
			&cli.DurationFlag{Name: "idle", Value: 10 * time.Second, Usage: "`time` of each idle part", Destination: &cfg.idle},
			&cli.DurationFlag{Name: "outage", Value: time.Minute, Usage: "`time` without a broker in the growth part", Destination: &cfg.outage},
			&cli.BoolFlag{Name: "quick", Usage: "at most 100 000 events, short parts, no growth", Destination: &quick},
			&cli.StringFlag{Name: "pg", Usage: "`URL` of a PostgreSQL to use: a database of its own is made there and dropped", Destination: &cfg.pg},
			&cli.StringFlag{Name: "nats", Usage: "`URL` of a NATS server to use: streams of its own are made there and deleted", Destination: &cfg.nats},
			&cli.StringFlag{Name: "relay", Usage: "`program` to measure instead of the relay in this one", Destination: &cfg.relay},
			&cli.StringFlag{Name: "profile", Usage: "write a CPU profile of the draining relay to `file`", Destination: &cfg.profile},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object", Destination: &asJSON},
			&cli.BoolFlag{Name: "markdown", Usage: "print the tables of docs/performance.md", Destination: &markdown},
			&cli.StringFlag{Name: "svg", Usage: "write a chart to `file`", Destination: &svg},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("unexpected argument %q", c.Args().First())
			}
			cfg.growth = !quick
			if quick {
				cfg.events, cfg.steady, cfg.idle = min(cfg.events, 100_000), min(cfg.steady, 3*time.Second), min(cfg.idle, 5*time.Second)
			}
			if err := cfg.validate(); err != nil {
				return err
			}
			f, err := measure(c.Context, cfg)
			if err != nil {
				return err
			}
			if svg != "" {
				if err := os.WriteFile(svg, chart(f), 0o644); err != nil {
					return err
				}
			}
			switch {
			case asJSON:
				return json.NewEncoder(out).Encode(f)
			case markdown:
				return f.markdown(out)
			}
			return f.print(out)
		},
	}
}
