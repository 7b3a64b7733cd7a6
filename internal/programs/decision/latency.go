package decision

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/run/exemplar"
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
	out <- exemplar.Latency(l.desc, l.table.Latency())
}
