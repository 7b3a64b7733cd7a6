// Package exemplar shows the traces of single blocks beside the histogram that counts them.
package exemplar

import (
	"encoding/hex"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Latency is a table's Latency as a histogram, with its exemplars: a metric of its own, since applications
// that link the table need not link Prometheus.
func Latency(desc *prometheus.Desc, is enforce.Latency) prometheus.Metric {
	m := prometheus.MustNewConstHistogram(desc, is.Count, is.Sum.Seconds(), is.Buckets)
	if len(is.Exemplars) == 0 {
		return m
	}
	all := make([]prometheus.Exemplar, len(is.Exemplars))
	for i, e := range is.Exemplars {
		all[i] = prometheus.Exemplar{Value: e.Took.Seconds(), Labels: prometheus.Labels{"trace_id": hex.EncodeToString(e.Trace.ID[:])}, Timestamp: e.At}
	}
	return prometheus.MustNewMetricWithExemplars(m, all...)
}
