package decision

import (
	"encoding/hex"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// latencies shows a table's Latency as a histogram: applications that link the table need not link
// Prometheus.
type latencies struct {
	table *enforce.Table
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (l *latencies) Describe(out chan<- *prometheus.Desc) { out <- l.desc }

// Collect implements prometheus.Collector.
func (l *latencies) Collect(out chan<- prometheus.Metric) {
	is := l.table.Latency()
	m := prometheus.MustNewConstHistogram(l.desc, is.Count, is.Sum.Seconds(), is.Buckets)
	if len(is.Exemplars) > 0 {
		m = prometheus.MustNewMetricWithExemplars(m, exemplars(is.Exemplars)...)
	}
	out <- m
}

func exemplars(of []enforce.Exemplar) []prometheus.Exemplar {
	out := make([]prometheus.Exemplar, len(of))
	for i, e := range of {
		out[i] = prometheus.Exemplar{Value: e.Took.Seconds(), Labels: prometheus.Labels{"trace_id": hex.EncodeToString(e.Trace.ID[:])}, Timestamp: e.At}
	}
	return out
}
