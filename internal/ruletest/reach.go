package ruletest

import (
	"fmt"

	"github.com/tallygate/tallygate/internal/replay"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// Reach is how far tests get: which limits and candidates let a verdict fall, and which tiers hold for an event. A
// notice is a verdict where nothing else can fall.
type Reach struct {
	limits  []*rules.Limit // in the order of the rule files
	counted map[*rules.Limit]bool
	tiers   map[tier]bool
	fell    map[string]bool // by the verdict's name
	notices map[string]bool // limits that only warn
}

type tier struct {
	limit  *rules.Limit
	number int
}

// Unreached is what no test reaches, and why.
type Unreached struct {
	Name string // a limit's, a candidate's, or a limit's and the number of a tier: exports tier 2
	Why  string
}

func newReach() Reach {
	return Reach{counted: map[*rules.Limit]bool{}, tiers: map[tier]bool{}, fell: map[string]bool{}, notices: map[string]bool{}}
}

func (r *Reach) add(set *rules.Set) {
	r.limits = append(r.limits, set.Limits...)
	for _, l := range set.Limits {
		r.notices[l.Name] = l.Rule.Then.None
	}
}

// note adds what came of an event.
func (r *Reach) note(out *replay.Outcome) {
	for i, l := range out.Hits {
		r.counted[l] = true
		r.tiers[tier{l, out.Tiers[i]}] = true
	}
	for i, v := range out.Changes {
		if out.Fell[i] && (v.State != verdict.Warn || r.notices[v.Rule]) {
			r.fell[v.Rule] = true
		}
	}
}

// unreached lists what no test reached, in the order of the rule files.
func (r *Reach) unreached() (list []Unreached) {
	for _, l := range r.limits {
		candidate := l.CandidateName()
		switch {
		case !r.counted[l]:
			list = append(list, Unreached{l.Name, "counts no event"})
			continue
		case !r.fell[l.Name]:
			list = append(list, Unreached{l.Name, "counts events, but no verdict of it falls"})
		}
		if candidate != "" && !r.fell[candidate] {
			list = append(list, Unreached{candidate, "counts events, but no verdict of it falls"})
		}
		for i := range l.Tiers {
			if !r.tiers[tier{l, i + 1}] {
				list = append(list, Unreached{fmt.Sprintf("%s tier %d", l.Name, i+1), fmt.Sprintf("no event is in it: %s", l.Tiers[i].When())})
			}
		}
	}
	return list
}
