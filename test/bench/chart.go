package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// chart draws the figures as an SVG: bars, one below the other, each with its value. It carries its own background, so that it
// can be read on a dark page.
func chart(f *figures) []byte {
	d := &drawing{}
	d.heading("Events a second")
	top := max(f.DecodeOnly, f.PublishOnly, f.Drain)
	d.bar("read and decoded only", f.DecodeOnly, top, colourOther, "%.0f")
	d.bar("published only", f.PublishOnly, top, colourOther, "%.0f")
	d.bar("drain", f.Drain, top, colourRelay, "%.0f")

	d.heading("CPU an event in the drain, microseconds")
	top = max(f.RelayCPU, f.BrokerCPU, f.WalsenderCPU)
	d.bar("relay", f.RelayCPU, top, colourRelay, "%.1f")
	d.bar("nats-server", f.BrokerCPU, top, colourOther, "%.1f")
	d.bar("walsender", f.WalsenderCPU, top, colourOther, "%.1f")

	d.heading("Commit to stored, p50 and p99, ms (logarithmic)")
	d.spread("synchronous publish", f.PublishLatency, colourOther)
	for _, l := range loads() {
		d.spread(fmt.Sprintf("%d events/s", l.rate), f.Latency[fmt.Sprint(l.rate)], colourRelay)
	}

	for i, part := range growthParts() {
		if i == 0 && len(f.Growth) > 0 {
			d.heading("Growth: drain, events a second, and peak RSS")
		}
		top := figure(0)
		for _, g := range f.Growth {
			top = max(top, g.Rate)
		}
		for _, g := range f.Growth {
			if g.Part == part {
				d.bar(g.Part+": "+g.Value, g.Rate, top, colourRelay, "%.0f, "+g.PeakRSS.text("%.0f MiB"))
			}
		}
	}
	return d.svg(f.where())
}

func growthParts() []string {
	return []string{partTransaction, partPayload, partPerTx, partTable, partForeign, partReplicas, partOutage}
}

const (
	colourRelay = "#2f6f9f"
	colourOther = "#a9b4bd"

	chartWidth = 760
	chartLeft  = 300 // where the bars begin
	chartRoom  = 330 // the longest bar
	chartLine  = 22
)

// drawing collects rows from the top down.
type drawing struct {
	body strings.Builder
	y    int
}

func (d *drawing) text(x int, class, s string) {
	_, _ = fmt.Fprintf(&d.body, `<text x="%d" y="%d" class="%s">%s</text>`+"\n", x, d.y+15, class, html.EscapeString(s))
}

func (d *drawing) heading(s string) {
	d.y += chartLine
	d.text(20, "h", s)
	d.y += chartLine + 4
}

// bar draws a value. format is of the text beside it.
func (d *drawing) bar(name string, value, top figure, colour, format string) {
	width := 0.0
	if value.known() && top > 0 {
		width = chartRoom * float64(value/top)
	}
	d.text(20, "n", name)
	d.rect(chartLeft, width, colour)
	d.text(chartLeft+int(width)+8, "v", value.text(format))
	d.y += chartLine
}

// spread draws a bar from p50 to p99, from 0.1 ms to 10 s.
func (d *drawing) spread(name string, l latency, colour string) {
	at := func(ms figure) float64 {
		const decades = 5
		return chartRoom * min(1, max(0, (math.Log10(max(float64(ms), 0.1))+1)/decades))
	}
	from, to := at(l.P50), at(l.P99)
	d.text(20, "n", name)
	d.rect(chartLeft+from, max(3, to-from), colour)
	d.text(chartLeft+int(to)+12, "v", l.P50.text("%.2f")+" to "+l.P99.text("%.2f"))
	d.y += chartLine
}

func (d *drawing) rect(x, width float64, colour string) {
	_, _ = fmt.Fprintf(&d.body, `<rect x="%.1f" y="%d" width="%.1f" height="14" rx="2" fill="%s"/>`+"\n", x, d.y+3, width, colour)
}

func (d *drawing) svg(caption string) []byte {
	d.y += chartLine / 2
	d.text(20, "c", caption)
	height := d.y + 2*chartLine
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="What a relay was measured to do">
<style>text{font-family:system-ui,sans-serif;font-size:13px;fill:#24292f}.h{font-weight:600}.v{fill:#57606a}.c{font-size:10px;fill:#57606a}</style>
<rect width="100%%" height="100%%" fill="#ffffff"/>
%[3]s</svg>
`, chartWidth, height, d.body.String())
}
