package decision

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
)

// newReports makes the counter of reports.
func newReports() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tallygate_usage_reports_total", Help: "Reports of usage by Envoy's rate limit protocol, by what became of them.",
	}, []string{"result"})
}

// registerReports registers the counter of reports, from the start with all results: one that is missing cannot
// be told from one that never came.
func registerReports(reg prometheus.Registerer, reports *prometheus.CounterVec, on bool) error {
	if !on {
		return nil
	}
	for _, r := range envoylimit.AllReported() {
		reports.WithLabelValues(string(r))
	}
	return reg.Register(reports)
}
