package decision

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// ruleMetrics shows a table's Summary: applications that link the table need not link Prometheus.
type ruleMetrics struct{ table *enforce.Table }

var (
	descEntries   = prometheus.NewDesc("tallygate_blocklist_entries", "Verdicts in the table that have not ended.", nil, nil)
	descBlocked   = prometheus.NewDesc("tallygate_rule_blocked_keys", "Keys with an enforced block in force.", []string{"rule"}, nil)
	descShadow    = prometheus.NewDesc("tallygate_rule_shadow_keys", "Keys with a block in force that is in shadow mode.", []string{"rule"}, nil)
	descWouldDeny = prometheus.NewDesc("tallygate_rule_would_deny_total", "Checks that were allowed only because a rule's block is in shadow mode.", []string{"rule"}, nil)
)

// Describe implements prometheus.Collector.
func (m *ruleMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descEntries, descBlocked, descShadow, descWouldDeny} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *ruleMetrics) Collect(out chan<- prometheus.Metric) {
	s := m.table.Summary()
	out <- prometheus.MustNewConstMetric(descEntries, prometheus.GaugeValue, float64(s.Entries))
	for i := range s.Rules {
		r := &s.Rules[i]
		out <- prometheus.MustNewConstMetric(descBlocked, prometheus.GaugeValue, float64(r.Blocked), r.Rule)
		out <- prometheus.MustNewConstMetric(descShadow, prometheus.GaugeValue, float64(r.Shadow), r.Rule)
		out <- prometheus.MustNewConstMetric(descWouldDeny, prometheus.CounterValue, float64(r.WouldDeny), r.Rule)
	}
}
