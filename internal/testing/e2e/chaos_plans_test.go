package e2e

import (
	"testing"

	"github.com/tallygate/tallygate/rules"
)

// A seed is a plan: the same one each time, with rules that compile, faults that can be, and
// moments that follow each other.
func TestPlans(t *testing.T) {
	drawn := map[string]bool{}
	for seed := range uint64(300) {
		p := drawPlan(seed, 100_000, 5000, 12, faults())
		if again := drawPlan(seed, 100_000, 5000, 12, faults()); again.String() != p.String() || again.steps[0].seed != p.steps[0].seed {
			t.Fatalf("seed %d gives another plan the second time:\n%v%v", seed, p, again)
		}
		if _, err := rules.CompileWith("plan", ruleSet(p.rules), besideRules); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		n, before := 0, 0
		for _, s := range p.steps {
			if s.at <= before || s.at >= p.events {
				t.Fatalf("seed %d: a step at %d of %d events, after one at %d", seed, s.at, p.events, before)
			}
			before, n = s.at, n+len(s.faults)
			for _, f := range s.faults {
				drawn[f.String()] = true
				if f.members > len(p.aggregators) || f.alone && len(s.faults) > 1 {
					t.Fatalf("seed %d, with %d aggregators: %v", seed, len(p.aggregators), s)
				}
			}
		}
		if n != 12 {
			t.Fatalf("seed %d has %d faults", seed, n)
		}
	}
	for _, f := range faults() {
		if !drawn[f.String()] {
			t.Errorf("%v is in no plan, or there are two of that name", f)
		}
		delete(drawn, f.String())
	}
}
