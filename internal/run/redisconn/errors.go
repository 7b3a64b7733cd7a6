package redisconn

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/blocklist"
)

// CountErrors registers a counter of failed attempts at Redis, by what was the matter: one of kinds, which
// are blocklist.ErrorKinds when none is given.
func CountErrors(reg prometheus.Registerer, name, help string, counts func() map[blocklist.ErrorKind]uint64, kinds ...blocklist.ErrorKind) error {
	if len(kinds) == 0 {
		kinds = blocklist.ErrorKinds
	}
	return reg.Register(&errorCounter{prometheus.NewDesc(name, help, []string{"reason"}, nil), counts, kinds})
}

type errorCounter struct {
	desc   *prometheus.Desc
	counts func() map[blocklist.ErrorKind]uint64
	kinds  []blocklist.ErrorKind
}

func (r *errorCounter) Describe(ch chan<- *prometheus.Desc) { ch <- r.desc }

// Collect tells all reasons, so that a rate can be had from the beginning.
func (r *errorCounter) Collect(ch chan<- prometheus.Metric) {
	counts := r.counts()
	for _, t := range r.kinds {
		ch <- prometheus.MustNewConstMetric(r.desc, prometheus.CounterValue, float64(counts[t]), string(t))
	}
}
