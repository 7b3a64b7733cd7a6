package owner

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/rules"
)

// However many names callers make up, and however many partitions and aggregators a process has: the
// metric has a hundred of them of each kind, and the log as many lines.
func TestNamesOfMismatchesAreFew(t *testing.T) {
	reg := prometheus.NewRegistry()
	lines := 0
	for _, m := range []*Metrics{NewMetrics(reg), NewMetrics(reg)} {
		for i := range 500 {
			for _, what := range []string{rules.MismatchAPI, rules.MismatchAttr} {
				if _, isNew := m.mismatches.add(rules.Mismatch{What: what, Name: fmt.Sprint("n", i)}, 2); isNew {
					lines++
				}
			}
		}
	}
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range all {
		if f.GetName() != "tallygate_vocabulary_mismatches_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			got[m.GetLabel()[1].GetValue()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	if len(got) != 2*(rules.MaxMismatchNames+1) || lines != len(got) {
		t.Errorf("%d counters, %d lines", len(got), lines)
	}
	for name, want := range map[string]float64{"api n0": 4, "attr n99": 4, "api (other)": 2 * 2 * 400, "api n100": 0} {
		if got[name] != want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
}
