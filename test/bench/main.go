// Command bench measures a relay between a real PostgreSQL and a real JetStream, all on this machine, each a process of
// its own, with fresh data: how fast and at what cost a backlog drains, how long an event takes from commit to the
// stream, and what a relay at rest costs.
//
// The speed of a machine drifts, so the figures to compare are the ratios inside one run.
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
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-1cfd9858/relay/internal/app"
	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

const (
	childEnv   = "RELAY_TEST_CHILD"
	profileEnv = "RELAY_TEST_PROFILE"
)

func main() {
	sandbox.Main()
	if os.Getenv(childEnv) == "relay" {
		os.Exit(relay())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().RunContext(ctx, os.Args)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
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
	headers int // of each event, besides the relay's
	rate    int // transactions of one event a second, in the steady part
	steady  time.Duration
	idle    time.Duration
	profile string
}

func command() *cli.App {
	cfg := config{}
	var quick, asJSON bool
	return &cli.App{
		Name: "bench", Usage: "measure a relay", HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "events", Value: 500_000, Usage: "events in the backlog", Destination: &cfg.events},
			&cli.IntFlag{Name: "payload", Value: 250, Usage: "bytes of an event's payload", Destination: &cfg.payload},
			&cli.IntFlag{Name: "per-tx", Value: 10, Usage: "events in a transaction", Destination: &cfg.perTx},
			&cli.IntFlag{Name: "headers", Usage: "headers of each event, besides the relay's own", Destination: &cfg.headers},
			&cli.IntFlag{Name: "rate", Value: 1000, Usage: "transactions of one event a second in the steady part", Destination: &cfg.rate},
			&cli.DurationFlag{Name: "steady", Value: 10 * time.Second, Usage: "length of the steady part", Destination: &cfg.steady},
			&cli.DurationFlag{Name: "idle", Value: 10 * time.Second, Usage: "length of the idle part", Destination: &cfg.idle},
			&cli.StringFlag{Name: "profile", Usage: "write a CPU profile of the draining relay to `file`", Destination: &cfg.profile},
			&cli.BoolFlag{Name: "quick", Usage: "a backlog of 50 000, short parts", Destination: &quick},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object", Destination: &asJSON},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("unexpected argument %q", c.Args().First())
			}
			if quick {
				cfg.events, cfg.steady, cfg.idle = min(cfg.events, 50_000), 3*time.Second, 3*time.Second
			}
			if cfg.events < 1 || cfg.perTx < 1 || cfg.payload < 0 || cfg.rate < 1 {
				return errors.New("want positive numbers")
			}
			figures, err := measure(c.Context, cfg)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(figures)
			}
			return figures.print(os.Stdout)
		},
	}
}

// figures is what was measured.
type figures struct {
	Events           int     `json:"events"`
	EventsPerSecond  float64 `json:"events_per_second"` // of the drain
	RelayCPU         float64 `json:"relay_cpu_us_per_event"`
	NATSCPU          float64 `json:"nats_cpu_us_per_event"`
	WalsenderCPU     float64 `json:"walsender_cpu_us_per_event"`
	RelayVsBroker    float64 `json:"relay_vs_broker_cpu"`
	RelayShare       float64 `json:"relay_cpu_share"` // relay / (relay + walsender + nats-server)
	PeakRSS          float64 `json:"rss_peak_mib"`
	Rate             int     `json:"rate"`
	Latency          latency `json:"latency_ms"` // commit to stored, by the servers' clocks
	SteadyCPUPercent float64 `json:"steady_cpu_percent"`
	IdleCPUPercent   float64 `json:"idle_cpu_percent"`
}

type latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func (f figures) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { _, _ = fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	row("drain", "%d events at %.0f events/s", f.Events, f.EventsPerSecond)
	row("CPU an event", "relay %.1f us, nats-server %.1f us, walsender %.1f us", f.RelayCPU, f.NATSCPU, f.WalsenderCPU)
	row("relay / nats-server", "%.2f", f.RelayVsBroker)
	row("relay's share of all three", "%.2f", f.RelayShare)
	row("relay, peak RSS", "%.1f MiB", f.PeakRSS)
	row("commit to stored", "at %d transactions/s: p50 %.2f ms, p99 %.2f ms, max %.2f ms", f.Rate, f.Latency.P50, f.Latency.P99, f.Latency.Max)
	row("relay, CPU at that rate", "%.1f %% of a core", f.SteadyCPUPercent)
	row("relay, CPU at rest", "%.2f %% of a core", f.IdleCPUPercent)
	return w.Flush()
}
