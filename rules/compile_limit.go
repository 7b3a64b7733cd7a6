package rules

import (
	"cmp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// minGrain is the least time between two publications of one verdict that moves.
const minGrain = 100 * event.Millisecond

// limits reads a rule's limit, or its stacked limits.
func (c *compiler) limits(o *object, r *Rule) {
	inherited := windowFieldsOf(o)
	stacked := o.get("limits")
	if stacked == nil {
		if !o.has("limits") {
			c.required(o, "a rule", "limit")
			c.limit(o, r, r.Name, inherited.or(c.defaults.window), inherited)
		}
		return
	}
	for _, name := range []string{"limit", "tiers", "candidate"} {
		if n := o.get(name); n != nil {
			c.fail(n, "put it into the list too", "a rule has `%s` or `limits`, not both", name)
		}
	}
	if stacked.Kind != yaml.SequenceNode || len(stacked.Content) == 0 {
		c.fail(stacked, "as in limits: [{name: burst, limit: 5, per: 1s}, …]", "limits is a list of limits, not %s", emptyOr(stacked))
		return
	}
	names := map[string]int{}
	for _, n := range c.items(stacked) {
		lo, ok := c.object(n, "a limit", append([]string{"name", "limit", "tiers", "candidate"}, windowFieldNames...)...)
		if !ok {
			continue
		}
		c.required(lo, "a limit", "name", "limit")
		name, ok := c.name(lo.get("name"), "a limit's name")
		if line, twice := names[name]; ok && twice {
			c.fail(lo.get("name"), "", "this rule has a limit named %q already, on line %d", name, line)
		}
		names[name] = n.Line
		own := windowFieldsOf(lo)
		c.limit(lo, r, r.Name+"/"+name, own.or(inherited).or(c.defaults.window), own)
	}
}

func emptyOr(n *yaml.Node) string {
	if n.Kind == yaml.SequenceNode {
		return "an empty list"
	}
	return describe(n)
}

// limit reads one limit and its window. own are the fields that were written for it, and not
// for several.
func (c *compiler) limit(o *object, r *Rule, name string, w, own windowFields) {
	before := len(c.errs)
	l := &Limit{Rule: r, Name: name}
	if n := o.get("limit"); n != nil {
		l.Limit = c.limitNumber(n, r)
	}
	c.tiers(o, l)
	c.candidate(o, l)
	l.Warn = r.warn
	if !c.window(o, l, w, own) || len(c.errs) > before || l.Limit == 0 {
		return
	}
	c.addLimit(o, l, w, own)
	c.ownCandidate(o, l, w, own)
}

// addLimit adds a limit that was read to its rule and to the set.
func (c *compiler) addLimit(o *object, l *Limit, w, own windowFields) {
	if err := l.Window.Validate(); err != nil {
		c.fail(cmp.Or(own["resolution"], w["per"]), "", "%s", strings.ReplaceAll(err.Error(), "windows: ", ""))
		return
	}
	l.Index = len(c.set.Limits)
	l.Grain = max(l.PerMin/60, minGrain)
	l.Hash = sectionHash(l)
	if other := c.set.byHash[l.Hash]; other != nil && len(c.errs) == 0 {
		c.fail(o.node, "rename one of them", "the counters of %q and %q have one name in the state", l.Name, other.Name)
	}
	c.set.byHash[l.Hash] = l
	l.formers = formerSections(l)
	for _, f := range l.formers {
		c.set.byHash[f.hash] = l
	}
	c.warnHeavy(o, l)
	r := l.Rule
	r.Limits = append(r.Limits, l)
	c.set.Limits = append(c.set.Limits, l)
}

func (c *compiler) limitNumber(n *yaml.Node, r *Rule) event.Decimal {
	return c.number(n, "limit", r)
}

// number reads what a rule's counts are compared with.
func (c *compiler) number(n *yaml.Node, what string, r *Rule) event.Decimal {
	s, ok := c.text(n, what)
	if !ok {
		return 0
	}
	if s == "unlimited" {
		c.fail(n, "an unlimited tier is written {when: …, unlimited: true}", "%s: a number, not %q", what, s)
		return 0
	}
	d, problem, hint := scalar.ParseNumber(scalar.PlainNumber(s))
	switch {
	case problem != "":
		c.fail(n, hint, "%s: %s", what, problem)
		return 0
	case r.Count != CountSum && !d.Whole():
		c.fail(n, "only the limit of a sum may be a fraction", "%s: events are counted in whole numbers, not %s", what, s)
		return 0
	}
	return d
}

// warnHeavy warns of an API of which a single event is over the limit.
func (c *compiler) warnHeavy(o *object, l *Limit) {
	if l.Rule.Count != CountEvents {
		return
	}
	for _, a := range l.Rule.match.apis {
		if event.One.TimesInt(a.weight) > l.Limit && !l.Shadow {
			c.warn(o.get("limit"), "", "one event of %s weighs %d, more than the limit", a.pattern, a.weight)
			return
		}
	}
}
