package enforce

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/verdict"
)

// decisions counts checks by the rule that decided, and its action. Who counts takes no lock, and allocates
// nothing but for the first check of each.
type decisions struct {
	counts atomic.Pointer[map[decided]*atomic.Uint64] // never changed: replaced, under mu
	mu     sync.Mutex
}

type decided struct {
	rule   string
	action verdict.Action
}

func (d *decisions) add(rule string, action verdict.Action) {
	if n := d.all()[decided{rule, action}]; n != nil {
		n.Add(1)
		return
	}
	d.counter(decided{rule, action}).Add(1)
}

func (d *decisions) all() map[decided]*atomic.Uint64 {
	if all := d.counts.Load(); all != nil {
		return *all
	}
	return nil
}

// counter returns the counter of a rule and action, made if there is none.
func (d *decisions) counter(of decided) *atomic.Uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.all()
	if len(all) >= index.MaxRules && all[of] == nil {
		of.rule = index.OtherRules
	}
	n := all[of]
	if n == nil {
		n = &atomic.Uint64{}
		grown := maps.Clone(all)
		if grown == nil {
			grown = map[decided]*atomic.Uint64{}
		}
		grown[of] = n
		d.counts.Store(&grown)
	}
	return n
}

// addTo adds what was counted to a list of rules.
func (d *decisions) addTo(rules []RuleSummary) []RuleSummary {
	at := map[string]int{}
	for i := range rules {
		at[rules[i].Rule] = i
	}
	for of, n := range d.all() {
		i, there := at[of.rule]
		if !there {
			i, at[of.rule] = len(rules), len(rules)
			rules = append(rules, RuleSummary{Rule: of.rule})
		}
		if rules[i].Decided == nil {
			rules[i].Decided = map[verdict.Action]uint64{}
		}
		rules[i].Decided[of.action] = n.Load()
	}
	return rules
}
