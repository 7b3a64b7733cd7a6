package redisconn

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/blocklist"
)

// CountErrors registers a counter of failed attempts at Redis, by what was the matter.
func CountErrors(reg prometheus.Registerer, name, help string, counts func() map[blocklist.ErrorKind]uint64) error {
	return reg.Register(&errorCounter{prometheus.NewDesc(name, help, []string{"reason"}, nil), counts})
}

type errorCounter struct {
	desc   *prometheus.Desc
	counts func() map[blocklist.ErrorKind]uint64
}

func (r *errorCounter) Describe(ch chan<- *prometheus.Desc) { ch <- r.desc }

// Collect tells all reasons, so that a rate can be had from the beginning.
func (r *errorCounter) Collect(ch chan<- prometheus.Metric) {
	counts := r.counts()
	for _, t := range blocklist.ErrorKinds {
		ch <- prometheus.MustNewConstMetric(r.desc, prometheus.CounterValue, float64(counts[t]), string(t))
	}
}
