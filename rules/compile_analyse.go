package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/logic"
	"github.com/tallygate/tallygate/rules/when"
	"github.com/tallygate/tallygate/verdict"
)

// analyst looks for what a rule cannot mean: conditions that never hold together, and limits that nothing
// reaches.
type analyst struct {
	*ruleReader

	solver *logic.Solver
	counts logic.Cases // which events the rule counts, as far as that is known
}

// analyse looks at a rule that was read without mistakes.
func analyse(c *ruleReader, before int) {
	if c.Refused() != before || c.Ended() != nil {
		return
	}
	a := &analyst{ruleReader: c, solver: &logic.Solver{}}
	a.match()
	for _, l := range c.r.Limits {
		a.tiers(l)
		a.fewValues(l)
	}
	a.dominated()
	a.clock()
	a.lockedOut()
	a.fallingSteps()
}

// match compares `match`, `key` and `count` with each other and with `when`.
func (c *analyst) match() {
	c.counts = logic.Always()
	if !c.all(c.r.match.terms()) || !c.all(c.keyTerms()) {
		c.contradict(c.o.At("match"), "`match`, `key` and `count` contradict each other")
		return
	}
	n := c.o.Get("when")
	f, known := c.formulas[n]
	if n == nil || !known || f.True.Never() {
		return
	}
	if c.counts = c.solver.And(c.counts, f.True); c.counts.Never() {
		c.contradict(n, "`when` contradicts what `match`, `key` and `count` ask for")
	}
}

// all adds conditions to those of the events that count; false when none is left that meets all of them.
func (c *analyst) all(terms map[string]logic.Domain) bool {
	for name, d := range terms {
		c.counts = c.solver.And(c.counts, logic.Of(name, c.base(name).And(d)))
		if c.counts.Never() && c.solver.Conflict.Term == "" {
			c.solver.Conflict.Term = name
		}
	}
	return !c.counts.Never()
}

func (c *analyst) contradict(n *yaml.Node, what string) {
	about := c.solver.Conflict.Term
	c.Refuse(c.At(n, "what `match` names, what the key has and what is counted must be there in one event",
		what+" about "+about+": the rule counts nothing"))
	c.counts = logic.Always() // it was told
}

// base returns a term's values in any event.
func (c *analyst) base(term string) logic.Domain {
	if name, isAttr := strings.CutPrefix(term, when.AttrTerm("")); isAttr {
		return c.events().Attrs.AttrDomain(name)
	}
	d, _ := when.VariableDomain(term)
	return d
}

// terms lists the conditions of `match`, besides the outcome that it leaves out by itself.
func (rm *ruleMatch) terms() map[string]logic.Domain {
	out := map[string]logic.Domain{"api": rm.apiDomain()}
	if len(rm.outcomes) > 0 {
		d := logic.OfKinds(logic.Text)
		d.Texts = rm.outcomes
		out["outcome"] = d
	}
	for _, a := range rm.attrs {
		d := logic.OfKinds(logic.Text)
		d.Texts, d.Numbers = a.values, []float64{}
		for _, text := range a.values { // by their text, whatever type they have
			switch number, isNumber := event.CanonicalNumber(text); {
			case text == "true":
				d.Kinds |= logic.True
			case text == "false":
				d.Kinds |= logic.False
			case isNumber && number == text:
				n, _ := strconv.ParseFloat(text, 64)
				d.Kinds, d.Numbers = d.Kinds|logic.Number, append(d.Numbers, n)
			}
		}
		name := when.AttrTerm(a.name)
		if have, twice := out[name]; twice {
			d = have.And(d)
		}
		out[name] = d
	}
	return out
}

// apiDomain are the APIs that a rule is for.
func (rm *ruleMatch) apiDomain() logic.Domain {
	d := logic.OfKinds(logic.Text)
	patterns := make([]string, len(rm.apis))
	some := false
	for i, a := range rm.apis {
		patterns[i] = a.pattern
		some = some || strings.Contains(a.pattern, "*")
	}
	if !some {
		d.Texts = patterns
		return d
	}
	fits := func(api string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return p == "*" || verdict.MatchAPI(p, api) })
	}
	d.Tests = []logic.Test{logic.Fits(strings.Join(patterns, " "), fits)}
	if head, _, _ := strings.Cut(patterns[0], "*"); len(patterns) == 1 && head != "" {
		d.Tests = append(d.Tests, logic.Test{Op: "startsWith", With: head, Wanted: true, Holds: func(api string) bool { return strings.HasPrefix(api, head) }})
	}
	return d
}

// keyTerms lists the fields that an event needs to be counted at all.
func (c *analyst) keyTerms() map[string]logic.Domain {
	there := logic.OfKinds(logic.Anything &^ (logic.Nil | logic.Fails))
	out := map[string]logic.Domain{}
	for _, dim := range c.r.Shape.dims() {
		switch _, address := event.ParseAddressDim(dim); {
		case address:
			out["ip"] = there
		case dim == "uid" || strings.HasPrefix(dim, "attrs."):
			out[dim] = there
		}
	}
	switch {
	case c.r.Count == CountSum && c.r.Attr != "":
		out[when.AttrTerm(c.r.Attr)] = logic.OfKinds(logic.Number)
	case c.r.Count == CountDistinct && c.r.Attr != "":
		out[when.AttrTerm(c.r.Attr)] = there
	case c.r.Count == CountDistinct && c.r.Field != "api":
		out[c.r.Field] = there
	}
	return out
}

// tiers warns of those that no event has: since they ask for what the rule does not count, or since the tiers
// before them hold first.
func (c *analyst) tiers(l *Limit) {
	left := c.counts
	for _, at := range c.tiersAt[l] {
		f, known := c.formulas[at]
		switch {
		case !known || f.True.Never():
			continue
		case c.solver.And(c.counts, f.True).Never():
			c.Warn(at, "leave it out, or widen `match`", "no event that the rule counts has this tier: it contradicts `match` or `when` about %s", c.solver.Conflict.Term)
		case c.solver.And(left, f.True).Never():
			c.Warn(at, "the first tier that holds counts: put the narrower one first", "this tier is never used: wherever it holds, one before it does")
		}
		left = c.solver.And(left, c.solver.DoesNotHold(f))
	}
}

// fewValues warns of a limit on distinct values that are fewer than it.
func (c *analyst) fewValues(l *Limit) {
	if c.r.Count != CountDistinct || l.Shadow || l.Told != nil || len(c.r.warn) > 0 || l.overrides != nil {
		return
	}
	term := c.r.Field
	if c.r.Attr != "" {
		term = when.AttrTerm(c.r.Attr)
	}
	values, ok := c.solver.And(c.counts, logic.Of(term, c.base(term))).Values(term)
	most, least := event.One.TimesInt(int64(len(values))), l.Limit
	for i := range l.Tiers {
		if l.Tiers[i].Limit != Unlimited {
			least = min(least, l.Tiers[i].Limit)
		}
	}
	if !ok || most > least || most == least && c.r.Then.reached() {
		return
	}
	c.Warn(c.limitAt[l], fmt.Sprintf("lower it below %d, or count events", len(values)),
		"the limit is never %s: %s has %d different values in what the rule counts", map[bool]string{true: "reached", false: "exceeded"}[c.r.Then.reached()], term, len(values))
}

// clock warns of hours and days in UTC in a rule whose days are those of a timezone.
func (c *analyst) clock() {
	zone := windowFields{c.o}.get("timezone")
	if zone == nil {
		zone = c.defaults.window.get("timezone")
	}
	if zone == nil || slices.Contains([]string{"UTC", "Etc/UTC"}, zone.Value) {
		return
	}
	nodes := []*yaml.Node{c.o.Get("when")}
	for _, l := range c.r.Limits {
		nodes = append(nodes, c.tiersAt[l]...)
	}
	for _, n := range nodes {
		if n == nil {
			continue
		}
		if at, call, found := when.ClockInUTC(n.Value); found {
			c.Doubt(c.Inside(n, at, "write time.In(timezone("+strconv.Quote(zone.Value)+"))"+strings.TrimPrefix(call, "time")+", or in UTC time.UTC()"+strings.TrimPrefix(call, "time"),
				call+" is in UTC, and the rule's timezone is "+zone.Value))
		}
	}
}

// lockedOut warns of a quota of distinct values: it blocks who has as many as are allowed, with what they have.
func (c *analyst) lockedOut() {
	if c.r.Count != CountDistinct || !c.r.Then.UntilReset || c.r.Then.At != AtDefault {
		return
	}
	c.Warn(c.o.At("then"), "write at: exceeded to let as many values as the limit go on; at: reached if they are to be blocked",
		"with until-reset a key is blocked when it has as many different values as the limit, also for values that it has already")
}

// fallingSteps warns of penalties that get shorter.
func (c *analyst) fallingSteps() {
	steps := c.r.Then.Steps
	for i := 1; i < len(steps); i++ {
		if steps[i] < steps[i-1] {
			c.Warn(c.o.At("then"), "steps go from short to long: the last one repeats", "escalate falls from %s to %s: who goes on gets less",
				FormatDuration(steps[i-1]), FormatDuration(steps[i]))
			return
		}
	}
}
