package deploy

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

const rulesFile = "prometheus/relay.rules.yml"

// alertTest: series are what Prometheus has, a sample every 30 s, in its notation for tests: a+bxn is n+1 values from a on, _ is none.
// Then the minutes at which an alert fires, and from what minute on it does not.
type alertTest struct {
	alert  string
	name   string
	series []string
	quiet  int // minute at which it does not fire yet
	fires  int // minute at which it fires; 0 = never
	over   int // minute at which it does not fire any more; 0 = not looked at
}

const (
	one = `{job="relay", instance="a"}`
	two = `{job="relay", instance="b"}`
	gib = 1 << 30
)

func alertTests() []alertTest {
	nans := strings.Repeat(" NaN", 120)
	return []alertTest{
		{"RelayNoLeader", "a standby takes over at once", []string{"relay_leader" + one + " 1x20 0x100", "relay_leader" + two + " 0x20 1x100"}, 5, 0, 0},
		{"RelayNoLeader", "nobody leads", []string{"relay_leader" + one + " 1x20 0x40 1x60", "relay_leader" + two + " 0x120"}, 10, 13, 40},
		{"RelayNoLeader", "all relays are gone", []string{"relay_leader" + one + " 1x20 stale", "relay_leader" + two + " 0x20 stale"}, 10, 30, 0},
		{"RelayNoLeader", "there was never one", []string{"up" + one + " 0x120"}, 0, 10, 0},
		{"RelayTwoLeaders", "a takeover", []string{"relay_leader" + one + " 1x20 0x100", "relay_leader" + two + " 0x18 1x102"}, 10, 0, 0},
		{"RelayTwoLeaders", "two slots in one job", []string{"relay_leader" + one + " 1x120", "relay_leader" + two + " 1x120"}, 1, 5, 0},
		{"RelayStalled", "a standby that is not ready is no stall", []string{"relay_leader" + one + " 0x120", "relay_ready" + one + " 0x120"}, 10, 0, 0},
		{"RelayStalled", "the broker is away", []string{"relay_leader" + one + " 1x120", "relay_ready" + one + " 1x20 0x40 1x60"}, 10, 13, 35},
		{"RelayStandbyNotReady", "PostgreSQL is away", []string{"relay_leader" + two + " 0x120", "relay_ready" + two + " 1x20 0x100"}, 13, 17, 0},
		{"RelayLag", "not known is not late", []string{"relay_lag_seconds" + one + nans, "relay_lag_seconds" + two + " 0x120"}, 30, 0, 0},
		{"RelayLag", "late", []string{"relay_lag_seconds" + one + " 0x20 0+30x60 0x40", "relay_lag_seconds" + two + nans}, 10, 20, 45},
		{"RelayInterrupted", "once", []string{`relay_publish_failures_total{job="relay", code="timeout"} 0x20 1x100`}, 12, 0, 0},
		{"RelayInterrupted", "again and again", []string{`relay_publish_failures_total{job="relay", code="refused"} 0x20 1+1x100`}, 10, 25, 0},
		{"RelaySessionsEnd", "a start", []string{"relay_sessions_total" + one + " 0x2 1x118"}, 5, 0, 0},
		{"RelaySessionsEnd", "one after the other", []string{"relay_sessions_total" + one + " 1+1x120"}, 2, 20, 0},
		{
			"RelaySlotDanger", "checkpoints make a saw-tooth", []string{
				"relay_slot_safe_bytes" + one + " " + strings.Repeat("2000000000-50000000x9 ", 12), "relay_slot_retained_bytes" + one + " 100000000x120",
			}, 30, 0, 0,
		},
		{"RelaySlotDanger", "without a limit", []string{"relay_slot_safe_bytes" + one + nans, "relay_slot_retained_bytes" + one + " 0+1000000000x120"}, 30, 0, 0},
		{
			"RelaySlotDanger", "it shrinks to nothing within the hour", []string{
				fmt.Sprintf("relay_slot_safe_bytes%s %dx40 %d-20000000x80", one, 2*gib, 2*gib), fmt.Sprintf("relay_slot_retained_bytes%s 0x40 0+20000000x80", one),
			}, 20, 40, 0,
		},
		{
			"RelaySlotDanger", "nine tenths are used, and it stands still", []string{
				fmt.Sprintf("relay_slot_safe_bytes%s %dx120", one, gib), fmt.Sprintf("relay_slot_retained_bytes%s %dx120", one, 19*gib),
			}, 4, 7, 0,
		},
		{
			"RelaySlotFills", "three quarters are used", []string{
				fmt.Sprintf("relay_slot_safe_bytes%s %dx120", one, gib), fmt.Sprintf("relay_slot_retained_bytes%s %dx120", one, 4*gib),
			}, 14, 17, 0,
		},
		{"RelayWALHeld", "a long outage", []string{fmt.Sprintf("relay_slot_retained_bytes%s %dx20 %dx100", one, gib, 21*gib)}, 20, 27, 0},
		{"RelayRetention", "no retention", []string{"relay_retention_last_success_timestamp_seconds" + one + nans}, 60, 0, 0},
		{"RelayRetention", "the leader's counts, not the standby's", []string{
			fmt.Sprintf("relay_retention_last_success_timestamp_seconds%s %d+30x800", one, start().Unix()), "relay_retention_last_success_timestamp_seconds" + two + nans + strings.Repeat(" NaN", 700),
		}, 60, 0, 0},
		{"RelayRetention", "none for hours", []string{fmt.Sprintf("relay_retention_last_success_timestamp_seconds%s %dx1000", one, start().Unix())}, 370, 377, 0},
		{"RelayPartitionsEnd", "not partitioned", []string{"relay_outbox_partitions_ahead_seconds" + one + nans}, 60, 0, 0},
		{"RelayPartitionsEnd", "a day is left", []string{"relay_outbox_partitions_ahead_seconds" + one + " 604800x20 86400x100"}, 20, 27, 0},
		{"RelayOrderBroken", "once", []string{"relay_order_broken_total" + one + " 0x20 1x240"}, 9, 15, 90},
		{"RelayStreamRegressed", "once", []string{"relay_stream_regressions_total" + one + " 0x20 1x240"}, 9, 15, 90},
		{"RelayForeignWriter", "foreign messages", []string{"relay_foreign_messages_total" + one + " 0x20 3x240", "relay_events_duplicate_total" + one + " 0x260"}, 9, 15, 90},
		{"RelayForeignWriter", "an id twice", []string{"relay_foreign_messages_total" + one + " 0x260", "relay_events_duplicate_total" + one + " 0x20 1x240"}, 9, 15, 90},
		{"RelayEventDropped", "as told", []string{"relay_events_dropped_total" + one + " 0x20 1x240"}, 9, 15, 90},
		{"RelayPoison", "exit 4", []string{`kube_pod_container_status_last_terminated_exitcode{container="relay", namespace="n", pod="p"} 0x20 4x100`}, 9, 11, 0},
		{"RelayPoison", "exit 1", []string{`kube_pod_container_status_last_terminated_exitcode{container="relay", namespace="n", pod="p"} 1x120`}, 9, 0, 0},
		{"RelayUnfit", "exit 6", []string{`kube_pod_container_status_last_terminated_exitcode{container="relay", namespace="n", pod="p"} 0x20 6x100`}, 9, 11, 0},
		{"RelayUnfit", "killed", []string{`kube_pod_container_status_last_terminated_exitcode{container="relay", namespace="n", pod="p"} 137x120`}, 9, 0, 0},
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, test := range alertTests() {
		if test.fires > 0 {
			tested[test.alert] = true
		}
		t.Run(test.alert+"/"+test.name, func(t *testing.T) {
			t.Parallel()
			fired := evaluate(t, test.alert, test.series, max(test.quiet, test.fires, test.over, 60))
			if fired[test.quiet] {
				t.Errorf("fires at minute %d", test.quiet)
			}
			if test.fires > 0 && !fired[test.fires] {
				t.Errorf("does not fire at minute %d; it does at %v", test.fires, minutes(fired))
			}
			if test.over > 0 && fired[test.over] {
				t.Errorf("still fires at minute %d", test.over)
			}
			if test.fires == 0 && len(minutes(fired)) > 0 {
				t.Errorf("fires at %v", minutes(fired))
			}
		})
	}
	for _, rule := range load(t) {
		if !tested[rule.Alert] {
			t.Errorf("no test makes %s fire", rule.Alert)
		}
	}
}

// Every alert says how bad it is, what it is, and which section of the runbook to read.
func TestRulesNameTheRunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			title := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
			anchors[strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(title, ""), " ", "-")] = true
		}
	}
	for _, rule := range load(t) {
		if !slices.Contains([]string{"critical", "warning"}, rule.Labels["severity"]) {
			t.Errorf("%s: severity %q", rule.Alert, rule.Labels["severity"])
		}
		notes := rule.Annotations
		if notes["summary"] == "" || notes["description"] == "" {
			t.Errorf("%s: no summary or no description", rule.Alert)
		}
		section, found := strings.CutPrefix(notes["runbook_url"], "https://github.com/seed-1cfd9858/relay/blob/main/docs/runbook.md#")
		if !found || !anchors[section] {
			t.Errorf("%s: docs/runbook.md has no section %q", rule.Alert, section)
		}
	}
}

func load(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), promslog.NewNopLogger())
	for _, err := range errs {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// evaluate asks for the alert once a minute, as Prometheus does, and returns the minutes at which it fired.
func evaluate(t *testing.T, alert string, series []string, last int) map[int]bool {
	t.Helper()
	all := load(t)
	rule := all[slices.IndexFunc(all, func(r rulefmt.Rule) bool { return r.Alert == alert })]
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	defer engine.Close()
	fired, since := map[int]bool{}, map[string]int{}
	for minute := range last + 1 {
		at := start().Add(time.Duration(minute) * time.Minute)
		query, err := engine.NewInstantQuery(t.Context(), parse(t, series), nil, rule.Expr, at)
		if err != nil {
			t.Fatal(err)
		}
		result, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatal(err)
		}
		now := map[string]int{}
		for _, sample := range result {
			key := sample.Metric.String()
			now[key] = minute
			if began, before := since[key]; before {
				now[key] = began
			}
			if time.Duration(minute-now[key])*time.Minute >= time.Duration(rule.For) {
				fired[minute] = true
			}
		}
		since = now
		query.Close()
	}
	return fired
}

func start() time.Time { return time.Unix(1_800_000_000, 0) }

// memory is a storage of the series of one test.
type memory []storage.Series

// parse reads series in Prometheus's notation for tests, a value every 30 s.
func parse(t *testing.T, series []string) memory {
	t.Helper()
	var m memory
	for _, text := range series {
		name, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var all []chunks.Sample
		for i, v := range values {
			if !v.Omitted {
				all = append(all, number{start().Add(time.Duration(i) * 30 * time.Second).UnixMilli(), v.Value})
			}
		}
		m = append(m, storage.NewListSeries(name, all))
	}
	return m
}

// Querier makes memory a storage.Queryable.
func (m memory) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &set{at: -1}
		for _, s := range m {
			fits := func(matcher *labels.Matcher) bool { return matcher.Matches(s.Labels().Get(matcher.Name)) }
			if !slices.ContainsFunc(matchers, func(matcher *labels.Matcher) bool { return !fits(matcher) }) {
				found.all = append(found.all, s)
			}
		}
		return found
	}}, nil
}

// number is one sample.
type number struct {
	at    int64
	value float64
}

func (n number) T() int64                      { return n.at }
func (n number) ST() int64                     { return 0 }
func (n number) F() float64                    { return n.value }
func (n number) H() *histogram.Histogram       { return nil }
func (n number) FH() *histogram.FloatHistogram { return nil }
func (n number) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (n number) Copy() chunks.Sample           { return n }

// set goes through series.
type set struct {
	all memory
	at  int
}

func (s *set) Next() bool {
	s.at++
	return s.at < len(s.all)
}
func (s *set) At() storage.Series                { return s.all[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

func minutes(fired map[int]bool) (all []int) {
	for minute := range fired {
		all = append(all, minute)
	}
	slices.Sort(all)
	return all
}
