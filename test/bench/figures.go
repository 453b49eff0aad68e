package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
)

// figures is what was measured. In JSON a figure that could not be measured is null.
type figures struct {
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Events   int               `json:"events"` // of the backlog
	Payload  int               `json:"payload"`
	PerTx    int               `json:"per_tx"`

	DecodeOnly  figure `json:"decode_only"`  // events a second
	PublishOnly figure `json:"publish_only"` // events a second
	Drain       figure `json:"drain"`        // events a second

	DrainVsPublish figure `json:"drain_vs_publish_only"`
	RelayShare     figure `json:"relay_cpu_share"`     // relay / (relay + walsender + nats-server)
	RelayVsBroker  figure `json:"relay_vs_broker_cpu"` // for an event of the same drain
	RelayCPU       figure `json:"relay_cpu_us_per_event"`
	BrokerCPU      figure `json:"nats_cpu_us_per_event"`
	WalsenderCPU   figure `json:"walsender_cpu_us_per_event"`
	DecodeCPU      figure `json:"decode_only_cpu_us_per_event"`
	PublishCPU     figure `json:"publish_only_cpu_us_per_event"`
	Allocs         figure `json:"allocs_per_event"`
	DecodeAllocs   figure `json:"decode_only_allocs_per_event"`
	PublishAllocs  figure `json:"publish_only_allocs_per_event"`
	PeakRSS        figure `json:"rss_peak_mib"` // of the drain

	IdleCPU     figure `json:"idle_cpu_percent"`
	IdleBusyCPU figure `json:"idle_busy_cpu_percent"`

	Latency        map[string]latency `json:"latency_ms"`         // by events a second: commit to stored
	PublishLatency latency            `json:"publish_latency_ms"` // the yardstick: a synchronous publish, at 1 000 a second
	SteadyCPU      map[string]figure  `json:"steady_cpu_percent"` // of the relay, by events a second
	Written        map[string]figure  `json:"steady_written"`     // events a second in fact, by those wanted

	Growth []grown `json:"growth,omitempty"`
}

func (f *figures) set(decode, publish alone, d drained) {
	f.DecodeOnly, f.DecodeCPU, f.DecodeAllocs = decode.Rate, decode.CPU, decode.Allocs
	f.PublishOnly, f.PublishCPU, f.PublishAllocs = publish.Rate, publish.CPU, publish.Allocs
	f.Drain, f.DrainVsPublish = d.Rate, d.Rate/publish.Rate
	f.RelayCPU, f.BrokerCPU, f.WalsenderCPU = d.Relay, d.Broker, d.Walsender
	f.RelayVsBroker, f.RelayShare = d.Relay/d.Broker, d.Relay/(d.Relay+d.Broker+d.Walsender)
	f.Allocs, f.PeakRSS = d.Allocs, d.PeakRSS
}

// describe notes where and with what it is measured.
func (f *figures) describe(ctx context.Context, s *servers) error {
	var pg string
	if err := s.admin.QueryRow(ctx, "SHOW server_version").Scan(&pg); err != nil {
		return err
	}
	f.Versions = map[string]string{"PostgreSQL": pg, "nats-server": s.js.Conn().ConnectedServerVersion(), "Go": strings.TrimPrefix(runtime.Version(), "go")}
	f.Machine = fmt.Sprintf("%d cores%s, %s/%s", runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// processor is the name of the machine's processor, where Linux tells it.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return " of " + strings.TrimSpace(value)
		}
	}
	return ""
}

// rows is the table for people.
func (f *figures) rows() [][2]string {
	rows := [][2]string{
		{"drain", f.Drain.text("%.0f events/s")},
		{"decode only, publish only", f.DecodeOnly.text("%.0f events/s, ") + f.PublishOnly.text("%.0f events/s")},
		{"CPU an event, in the drain", "relay " + f.RelayCPU.text("%.1f us") + ", nats-server " + f.BrokerCPU.text("%.1f us") + ", walsender " + f.WalsenderCPU.text("%.1f us")},
		{"relay's CPU an event, of which", "decode only " + f.DecodeCPU.text("%.1f us") + ", publish only " + f.PublishCPU.text("%.1f us")},
		{"allocations an event", f.Allocs.text("%.2f") + " (decode only " + f.DecodeAllocs.text("%.2f") + ", publish only " + f.PublishAllocs.text("%.2f") + ")"},
		{"peak RSS in the drain", f.PeakRSS.text("%.1f MiB")},
		{"synchronous publish", f.PublishLatency.text()},
	}
	for _, l := range loads() {
		key := fmt.Sprint(l.rate)
		rows = append(rows, [2]string{
			fmt.Sprintf("commit to stored, %d events/s", l.rate), f.Latency[key].text() +
				f.SteadyCPU[key].text("; relay %.1f %% of a core") + f.Written[key].text("; written %.0f/s"),
		})
	}
	return append(rows, [2]string{"idle", "relay " + f.IdleCPU.text("%.2f %%") + " of a core, with a busy neighbour table " + f.IdleBusyCPU.text("%.2f %%")})
}

func (l latency) text() string {
	return "p50 " + l.P50.text("%.2f ms") + ", p99 " + l.P99.text("%.2f ms") + ", max " + l.Max.text("%.2f ms")
}

// print writes the tables for people.
func (f *figures) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }
	line(f.where())
	for _, r := range f.rows() {
		line(r[0], r[1])
	}
	line("")
	line("goal", "wanted", "measured", "")
	for _, g := range f.goals() {
		line(g.figure, g.want, g.got, g.verdict())
	}
	if len(f.Growth) > 0 {
		line("")
		line("growth", "", "events/s", "seconds", "peak RSS")
		for _, g := range f.Growth {
			line(g.Part, g.Value, g.Rate.text("%.0f"), g.Seconds.text("%.1f"), g.PeakRSS.text("%.1f MiB"))
		}
	}
	return w.Flush()
}

func (f *figures) where() string {
	return fmt.Sprintf("%s; PostgreSQL %s, nats-server %s, Go %s; %d events of %d bytes, %d in a transaction",
		f.Machine, f.Versions["PostgreSQL"], f.Versions["nats-server"], f.Versions["Go"], f.Events, f.Payload, f.PerTx)
}

// markdown writes the tables of docs/performance.md.
func (f *figures) markdown(out io.Writer) error {
	var b strings.Builder
	line := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	b.WriteString(f.where() + ".\n\n")
	line("figure", "goal", "measured", "")
	line("---", "---", "---", "---")
	for _, g := range f.goals() {
		line(g.figure, g.want, g.got, g.verdict())
	}
	b.WriteString("\n")
	line("measured", "")
	line("---", "---")
	for _, r := range f.rows() {
		line(r[0], r[1])
	}
	if len(f.Growth) > 0 {
		b.WriteString("\n")
		line("growth", "", "events/s", "seconds", "peak RSS")
		line("---", "---", "---:", "---:", "---:")
		for _, g := range f.Growth {
			line(g.Part, g.Value, g.Rate.text("%.0f"), g.Seconds.text("%.1f"), g.PeakRSS.text("%.1f MiB"))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
