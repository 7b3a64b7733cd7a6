package ruletest

import (
	"fmt"

	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Reach is the coverage of tests: which limits and candidates issued a verdict, and which tiers
// applied to an event. For limits that only warn a notice counts as a verdict.
type Reach struct {
	limits  []*rules.Limit // in the order of the rule files
	counted map[*rules.Limit]bool
	tiers   map[tier]bool
	issued  map[string]bool // by the verdict's name
	notices map[string]bool // limits that only warn
}

type tier struct {
	limit  *rules.Limit
	number int
}

// Unreached is a limit, candidate or tier that no test reaches, and why.
type Unreached struct {
	Name string // such as exports, exports/candidate or exports tier 2
	Why  string
}

func newReach() Reach {
	return Reach{counted: map[*rules.Limit]bool{}, tiers: map[tier]bool{}, issued: map[string]bool{}, notices: map[string]bool{}}
}

func (r *Reach) add(set *rules.Set) {
	r.limits = append(r.limits, set.Limits...)
	for _, l := range set.Limits {
		r.notices[l.Name] = l.Rule.Then.None
	}
}

// note adds the outcome of an event.
func (r *Reach) note(out *engine.Outcome) {
	for i, l := range out.Hits {
		r.counted[l] = true
		r.tiers[tier{l, out.Tiers[i]}] = true
	}
	for i, l := range out.Told {
		r.tiers[tier{l, out.ToldAs[i]}] = true
	}
	for i, v := range out.Changes {
		if out.Issued[i] && (v.State != verdict.Warn || r.notices[v.Rule]) {
			r.issued[v.Rule] = true
		}
	}
}

// unreached lists what no test reaches, in the order of the rule files.
func (r *Reach) unreached() (list []Unreached) {
	for _, l := range r.limits {
		candidate := l.CandidateName()
		switch {
		case !r.counted[l]:
			list = append(list, Unreached{l.Name, "no event is counted"})
			continue
		case !r.issued[l.Name] && !l.Rule.Silent():
			list = append(list, Unreached{l.Name, "events are counted, but no verdict is issued"})
		}
		if candidate != "" && !r.issued[candidate] {
			list = append(list, Unreached{candidate, "events are counted, but no verdict is issued"})
		}
		for i := range l.Tiers {
			if !r.tiers[tier{l, i + 1}] {
				list = append(list, Unreached{fmt.Sprintf("%s tier %d", l.Name, i+1), fmt.Sprintf("it applies to no event: %s", l.Tiers[i].When())})
			}
		}
		if l.Told != nil && !r.tiers[tier{l, len(l.Tiers) + 1}] {
			list = append(list, Unreached{l.Name + " from", "no event tells the limit by attrs." + l.Told.Attr})
		}
	}
	return list
}
