package app

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/seed-1cfd9858/relay/publisher"
	"github.com/seed-1cfd9858/relay/pump"
	"github.com/seed-1cfd9858/relay/slot"
)

// metrics are a relay's figures for Prometheus. All but the histogram are read from its status when they are asked for, so
// they cost nothing else. No label carries an event, an aggregate or a topic.
type metrics struct {
	registry *prometheus.Registry
	latency  prometheus.Histogram
	status   func() pump.Status
	descs    []metric
}

// metric is one figure, or one for each value of a label.
type metric struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func(pump.Status, time.Time) map[string]float64 // by label value; "" where there is no label
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "relay_commit_to_stored_seconds",
			Help:    "Time from the commit in PostgreSQL to the ack of JetStream, of the oldest event in each batch of acks.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "relay_build_info", Help: "1, with the version.", ConstLabels: prometheus.Labels{"version": readVersion().Version, "go": readVersion().Go},
	})
	build.Set(1)
	m.registry.MustRegister(m, m.latency, build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// observe is for pump.Config.Observe.
func (m *metrics) observe(d time.Duration) { m.latency.Observe(d.Seconds()) }

// of makes the metrics speak of a relay.
func (m *metrics) of(status func() pump.Status) { m.status = status }

// Describe and Collect make metrics a prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	if m.descs == nil {
		m.descs = figures()
	}
	for _, d := range m.descs {
		ch <- d.desc
	}
}

// Collect gives the present figures.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	if m.status == nil {
		return
	}
	status, now := m.status(), time.Now()
	for _, d := range m.descs {
		for label, value := range d.values(status, now) {
			var labels []string
			if label != "" {
				labels = []string{label}
			}
			ch <- prometheus.MustNewConstMetric(d.desc, d.kind, value, labels...)
		}
	}
}

// figures lists what is collected. Unknown is NaN, so that a gauge exists from the start.
func figures() []metric {
	one := func(kind prometheus.ValueType, name, help string, f func(pump.Status, time.Time) float64) metric {
		return metric{prometheus.NewDesc(name, help, nil, nil), kind, func(s pump.Status, now time.Time) map[string]float64 {
			return map[string]float64{"": f(s, now)}
		}}
	}
	counter := func(name, help string, f func(pump.Status) uint64) metric {
		return one(prometheus.CounterValue, name, help, func(s pump.Status, _ time.Time) float64 { return float64(f(s)) })
	}
	gauge := func(name, help string, f func(pump.Status, time.Time) float64) metric {
		return one(prometheus.GaugeValue, name, help, f)
	}
	ofSlot := func(f func(*slot.Slot) *int64) func(pump.Status, time.Time) float64 {
		return func(s pump.Status, _ time.Time) float64 {
			if s.Slot == nil {
				return math.NaN()
			}
			return orNaN(f(s.Slot))
		}
	}
	return []metric{
		gauge("relay_leader", "1 while this relay holds the slot.", func(s pump.Status, _ time.Time) float64 { return truth(s.Leading()) }),
		gauge("relay_ready", "1 while /readyz says ok.", func(s pump.Status, now time.Time) float64 { return truth(unready(s, now) == "") }),
		{
			prometheus.NewDesc("relay_state", "1 for the present state.", []string{"state"}, nil), prometheus.GaugeValue,
			func(s pump.Status, _ time.Time) map[string]float64 {
				all := map[string]float64{}
				for _, state := range []pump.State{pump.StateStandby, pump.StateResuming, pump.StatePublishing, pump.StateDraining, pump.StateStopped} {
					all[string(state)] = truth(s.State == state)
				}
				return all
			},
		},
		counter("relay_events_published_total", "Events that the stream has acked.", func(s pump.Status) uint64 { return s.Counts.Published }),
		counter("relay_events_skipped_total", "Events that the stream had already.", func(s pump.Status) uint64 { return s.Counts.Skipped }),
		counter("relay_events_duplicate_total", "Events whose id the stream had from elsewhere.", func(s pump.Status) uint64 { return s.Counts.Duplicates }),
		counter("relay_events_dropped_total", "Events that the operator told to leave out.", func(s pump.Status) uint64 { return s.Counts.Dropped }),
		counter("relay_order_broken_total", "Events found in the stream before an earlier one.", func(s pump.Status) uint64 { return s.Counts.Reorders }),
		counter("relay_foreign_messages_total", "Messages of others seen among the relay's own.", func(s pump.Status) uint64 { return s.Counts.Foreign }),
		counter("relay_stream_regressions_total", "Times that the broker had lost what it acked.", func(s pump.Status) uint64 { return s.Regressed }),
		counter("relay_epochs_total", "Epochs of publishing that began.", func(s pump.Status) uint64 { return s.Counts.Epochs }),
		counter("relay_sessions_total", "Sessions with PostgreSQL in which this relay held the slot.", func(s pump.Status) uint64 { return s.Sessions }),
		{
			prometheus.NewDesc("relay_publish_failures_total", "How epochs of publishing ended.", []string{"code"}, nil), prometheus.CounterValue,
			func(s pump.Status, _ time.Time) map[string]float64 {
				all := map[string]float64{}
				for _, r := range publisher.Reasons() {
					all[string(r)] = float64(s.Failures[r])
				}
				return all
			},
		},
		gauge("relay_window_events", "Events that are read and not stored.", func(s pump.Status, _ time.Time) float64 { return float64(s.Events) }),
		gauge("relay_window_bytes", "Bytes of the events that are read and not stored.", func(s pump.Status, _ time.Time) float64 { return float64(s.Bytes) }),
		gauge("relay_lag_seconds", "Age of the oldest event that is read and not stored, 0 when none waits; NaN while unknown.",
			func(s pump.Status, now time.Time) float64 {
				if lag, known := s.Lag(now); known {
					return lag.Seconds()
				}
				return math.NaN()
			}),
		gauge("relay_last_stored_timestamp_seconds", "When an event was last stored by this process; NaN before the first.",
			func(s pump.Status, _ time.Time) float64 {
				if s.LastStored.IsZero() {
					return math.NaN()
				}
				return float64(s.LastStored.UnixNano()) / 1e9
			}),
		gauge("relay_lag_bytes", "WAL that is not confirmed, when the slot was last looked at.", ofSlot(func(s *slot.Slot) *int64 { return s.UnconfirmedBytes })),
		gauge("relay_slot_retained_bytes", "WAL that the slot holds back, when it was last looked at.", ofSlot(func(s *slot.Slot) *int64 { return s.RetainedBytes })),
		gauge("relay_slot_safe_bytes", "WAL until the slot is lost, when it was last looked at; NaN without a limit.", ofSlot(func(s *slot.Slot) *int64 { return s.SafeWALBytes })),
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func orNaN(n *int64) float64 {
	if n == nil {
		return math.NaN()
	}
	return float64(*n)
}
