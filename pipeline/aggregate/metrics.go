package aggregate

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
)

// metrics are the aggregator's. Labels are rules, partitions and reasons, and never keys.
type metrics struct {
	partitions *owner.Metrics

	rulesVersion  prometheus.Gauge
	rulesFailed   prometheus.Counter
	rulesDiffer   prometheus.Gauge
	membersDiffer *prometheus.GaugeVec
	lagging       *prometheus.GaugeVec
	lagSeconds    *prometheus.GaugeVec
	loopLag       *prometheus.GaugeVec
	loopSeconds   *prometheus.GaugeVec
	lastFetch     *prometheus.GaugeVec
	kafkaErrors   *prometheus.CounterVec
	failed        *prometheus.CounterVec
	eventRates    *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	r := owner.Registry{Registerer: reg}
	kafkaErrors := r.Counters("kafka_errors_total", "Failed requests to Kafka and refusals by Kafka, by reason.", "reason")
	for _, t := range reasons { // all reasons from the start, so that rates are defined
		kafkaErrors.WithLabelValues(t)
	}
	return &metrics{
		partitions:    owner.NewMetrics(reg),
		rulesVersion:  r.Gauge("rules_version", "Version of the group's rules that this instance runs; 0 if it runs rules of its own."),
		rulesFailed:   r.Counter("rules_failed_total", "Attempts to use a rule file that failed because of the file, and versions of the group's rules that failed to compile on this instance."),
		rulesDiffer:   r.Gauge("rules_differ", "Members of the group whose rules differ from this instance's."),
		membersDiffer: r.Gauges("members_differ", "Members of the group that differ from this instance in what must be the same for all.", "what"),
		lagging:       r.Gauges("partition_lag", "Records of the event partition not counted yet, whichever instance owns it.", "partition"),
		lagSeconds:    r.Gauges("partition_lag_seconds", "Seconds since the event partition was last counted to its end, or the age of the last counted record, whichever is greater; 0 when caught up.", "partition"),
		loopLag:       r.Gauges("loop_lag", "Records forwarded to an owned partition and not counted yet.", "partition"),
		loopSeconds:   r.Gauges("loop_lag_seconds", "Age of the forwarded event that an owned partition counted last; 0 while none waits.", "partition"),
		lastFetch:     r.Gauges("last_fetch_timestamp_seconds", "Time of the last response to a fetch of an owned partition, with or without records.", "partition"),
		kafkaErrors:   kafkaErrors,
		failed:        r.Counters("partition_failures_total", "Failures of an owned partition; each is followed by a new takeover.", "partition"),
		eventRates:    r.Gauges("partition_events_per_second", "Events per second over about the last 30 seconds; an event counts once per key.", "partition"),
	}
}

// follow registers the metrics of a budget.
func (m *metrics) follow(reg prometheus.Registerer, b *budget.Budget) {
	if reg == nil {
		return
	}
	gauges := []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tallygate_buffer_limit_bytes", Help: "Bound of the memory for events on their way: tallygate_buffer_bytes of all kinds together.",
	}, func() float64 { return float64(b.Limit()) })}
	for kind := range budget.Kinds {
		gauges = append(gauges, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tallygate_buffer_bytes", Help: "Memory held for events on their way, by kind.", ConstLabels: prometheus.Labels{"kind": kind.String()},
		}, func() float64 { return float64(b.Held(kind)) }))
	}
	for _, g := range gauges {
		_ = reg.Register(g) // an earlier Aggregator of the same process has registered its own
	}
}

func label(partition int32) string { return strconv.Itoa(int(partition)) }

// notOwned removes the series about reading a partition that this instance no longer owns.
func (m *metrics) notOwned(partition int32) {
	for _, v := range []*prometheus.GaugeVec{m.lastFetch, m.loopLag, m.loopSeconds} {
		v.DeleteLabelValues(label(partition))
	}
}

func (m *metrics) kafkaError(err error) { m.kafkaErrors.WithLabelValues(reasonOf(err)).Inc() }

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
