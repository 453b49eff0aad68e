package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// some are figures with all of a run in them, a few unknown.
func some() *figures {
	f := &figures{
		Machine: "2 cores of <a & b>", Versions: map[string]string{"PostgreSQL": "17.1", "nats-server": "2.15.3", "Go": "1.26"},
		Latency: map[string]latency{"100": {1, 2, 3}, "1000": {1, 2, 3}, "10000": {1, 2, 3}}, PublishLatency: latency{0.2, 0.5, 1},
		SteadyCPU: map[string]figure{"1000": 9}, Written: map[string]figure{},
	}
	f.set(alone{100_000, 5, 0}, alone{90_000, 5, 1}, drained{Rate: 60_000, Relay: 2, Broker: 8, Walsender: unknown(), PeakRSS: 50, Allocs: 2})
	f.Growth = []grown{{partTable, "0", 1, 100, 1, 50}, {partTable, "10,000,000", 1, 90, 1, 50}}
	return f
}

// TestJSONKeys: programs rely on these.
func TestJSONKeys(t *testing.T) {
	text, err := json.Marshal(some())
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"decode_only", "publish_only", "drain", "relay_cpu_share", "relay_vs_broker_cpu", "relay_cpu_us_per_event",
		"allocs_per_event", "rss_peak_mib", "idle_cpu_percent", "latency_ms",
	} {
		if _, ok := got[key]; !ok {
			t.Errorf("no key %s in %s", key, text)
		}
	}
	if got["relay_cpu_share"] != nil || got["walsender_cpu_us_per_event"] != nil {
		t.Errorf("what was not measured is not null: %s", text)
	}
}

func TestGoals(t *testing.T) {
	verdicts := map[string]string{}
	for _, g := range some().goals() {
		verdicts[g.figure] = g.verdict()
	}
	for figure, want := range map[string]string{
		"relay's share of the CPU in the drain":                        "", // the walsender was not measured
		"relay's CPU against nats-server's":                            "met",
		"drain against publish only":                                   "met",
		"throughput with 10,000,000 in the table, against none":        "missed",
		"commit to stored at 1 000 transactions/s, p99 (4 x + 0.3 ms)": "met",
	} {
		if got, ok := verdicts[figure]; !ok || got != want {
			t.Errorf("%s: %q (%t), want %q", figure, got, ok, want)
		}
	}
}

// TestTexts: the tables say everything, and the chart is well-formed.
func TestTexts(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{"print": some().print, "markdown": some().markdown} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"60000 events/s", "not measured", "missed", partTable} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s: no %q in\n%s", name, part, out.String())
			}
		}
	}
	for d := xml.NewDecoder(bytes.NewReader(chart(some()))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
