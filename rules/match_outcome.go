package rules

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// maxOutcomeWeight bounds an outcome's weight, so that times an API's, which is at most MaxLimit, it is an int64.
const maxOutcomeWeight = 1_000_000

// outcomeWeights are weights by outcome; everyOutcome is that of those without one of their own. nil: each weighs 1.
type outcomeWeights map[string]int64

// of is the weight of an event's outcome that the rule takes.
func (w outcomeWeights) of(outcome string) int64 {
	if w == nil {
		return 1
	}
	if own, has := w[outcome]; has {
		return own
	}
	return max(w[everyOutcome], 1)
}

// before is the weight of an action before it: the greatest where the outcome is not known.
func (w outcomeWeights) before(outcome string) (most int64) {
	if w == nil || outcome != "" {
		return w.of(outcome)
	}
	for _, weight := range w {
		most = max(most, weight)
	}
	return most
}

// WeighsOutcomes reports whether the rule gives outcomes weights of their own.
func (r *Rule) WeighsOutcomes() bool { return r.match.byOutcome != nil }

// matchOutcome reads match.outcome: a value, a list, or a map of them to weights.
func matchOutcome(c *ruleReader, n *yaml.Node) {
	m := &c.r.match
	if n.Kind != yaml.MappingNode {
		c.outcomesOf(m, n)
		return
	}
	pairs, _ := c.Pairs(n, "outcome")
	if len(n.Content) == 0 {
		c.Fail(n, "as in outcome: {failure: 2, success: 1}", "outcome is an empty mapping")
	}
	m.byOutcome = outcomeWeights{}
	for _, p := range pairs {
		names := c.values(p.Key, "outcome")
		weight, ok := outcomeWeight(c, p.Value)
		if !ok || len(names) != 1 {
			continue
		}
		if m.byOutcome[names[0]] = weight; names[0] != everyOutcome {
			wordReader{c.compiler}.outcomeWord(p.Key)
		}
	}
	if m.byOutcome[everyOutcome] > 0 {
		m.anyOutcome = true
		return
	}
	m.outcomes = slices.Sorted(maps.Keys(m.byOutcome))
}

func outcomeWeight(c *ruleReader, n *yaml.Node) (int64, bool) {
	s, ok := c.Text(n, "a weight")
	if !ok {
		return 0, false
	}
	weight, problem, hint := scalar.ParseNumber(scalar.PlainNumber(s))
	switch {
	case problem != "":
		c.Fail(n, hint, "a weight is a whole number of at least 1: %s", problem)
	case !weight.Whole():
		c.Fail(n, "", "a weight is a whole number of at least 1, not %s", s)
	case weight > maxOutcomeWeight*event.One:
		c.Fail(n, "", "an outcome's weight is at most %d, not %s", maxOutcomeWeight, s)
	default:
		return int64(weight / event.One), true
	}
	return 0, false
}
