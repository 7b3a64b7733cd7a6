package rules

import (
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// maxTiers bounds how many predicates an event is asked for under one limit.
const maxTiers = 32

// tiers reads a limit's tiers.
func (c *compiler) tiers(o *object, l *Limit) {
	n := o.get("tiers")
	if n == nil {
		return
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > maxTiers {
		c.fail(n, `as in tiers: [{when: 'attrs.plan == "pro"', limit: 100}]`, "tiers is a list of up to %d tiers, not %s", maxTiers, emptyOr(n))
		return
	}
	for _, item := range c.items(n) {
		to, ok := c.object(item, "a tier", "when", "limit", "unlimited")
		if !ok {
			continue
		}
		if !to.has("when") {
			c.fail(item, mappings["a tier"], "a tier needs `when`: for which events it is")
		}
		var tier Tier
		if n := to.get("when"); n != nil {
			tier.when, tier.text, tier.id = c.when(n), n.Value, xxhash.Sum64String(n.Value)>>32|1
		}
		limit, unlimited := to.get("limit"), to.get("unlimited")
		switch {
		case limit != nil && unlimited != nil:
			c.fail(unlimited, "", "a tier has `limit` or `unlimited`, not both")
		case limit != nil:
			tier.Limit = c.limitNumber(limit, l.Rule)
		case unlimited != nil:
			if !c.boolean(unlimited, "unlimited") {
				c.fail(unlimited, "leave it out, and write a limit", "`unlimited` is true, or not there")
			}
		case !to.has("limit") && !to.has("unlimited"):
			c.fail(item, "as in {when: …, limit: 100} or {when: …, unlimited: true}", "a tier needs `limit`")
		}
		l.Tiers = append(l.Tiers, tier)
	}
}

// candidate reads the limit that is tried beside the live one.
func (c *compiler) candidate(o *object, l *Limit) {
	n := o.get("candidate")
	if n == nil {
		return
	}
	if n.Kind == yaml.ScalarNode {
		c.fail(n, "write candidate: {limit: "+scalar.Shortened(n.Value)+"}", "candidate is a mapping, not %s", describe(n))
		return
	}
	co, ok := c.object(n, "candidate", "limit")
	if !ok {
		return
	}
	c.required(co, "candidate", "limit")
	if n := co.get("limit"); n != nil {
		l.Candidate = c.limitNumber(n, l.Rule)
		if l.Candidate > 0 && l.Candidate == l.Limit {
			c.warn(n, "", "the candidate's limit is the live one's")
		}
	}
	if l.Rule.Then.None {
		c.fail(n, "give the rule a `then`", "a rule that lets no verdict fall has nothing to try")
	}
}

// ownCandidate makes a limit of its own of a candidate that can't share the live limit's counters: see
// windowKind.candidate.
func (c *compiler) ownCandidate(o *object, l *Limit, w, own windowFields) {
	apart := windowKinds[l.Window.Kind].candidate
	if l.Candidate == 0 || apart == nil {
		return
	}
	try := &Limit{
		Rule: l.Rule, Name: l.Name + candidateSuffix, Limit: l.Candidate, Shadow: true, Window: l.Window,
		PerMin: l.PerMin, PerMax: l.PerMax, Debt: l.Debt, panes: l.panes,
	}
	if !apart(l, try, w) {
		return
	}
	l.Candidate = 0
	c.addLimit(o, try, w, own)
}

// largest is the greatest number that the limit's counts are compared with.
func (l *Limit) largest() event.Decimal { return max(l.largestLive(), l.Candidate) }

// largestLive is the same without the candidate's.
func (l *Limit) largestLive() event.Decimal {
	most := l.Limit
	for _, t := range l.Tiers {
		most = max(most, t.Limit)
	}
	return most
}

// percentage reads a share such as 5% or 12.5%, of at most 100%, in millionths.
func (c *compiler) percentage(n *yaml.Node, what string) (share event.Decimal, text string, ok bool) {
	const hundred = 100
	text, ok = c.text(n, what)
	if !ok {
		return 0, "", false
	}
	number, isShare := strings.CutSuffix(text, "%")
	d, problem, _ := scalar.ParseNumber(number)
	if problem == "" && strings.Trim(number, "0123456789.") != "" {
		problem = "a suffix"
	}
	switch {
	case !isShare || problem != "":
		hint := "write it as 80%"
		switch {
		case isShare || problem != "":
		case d >= event.One:
			hint = fmt.Sprintf("did you mean %s%%?", text)
		default:
			hint = fmt.Sprintf("did you mean %v%%?", d*hundred)
		}
		c.fail(n, hint, "%s: %q is not a percentage", what, scalar.Shortened(text))
	case d > hundred*event.One:
		c.fail(n, "it is a share, of at most 100%", "%s: %s is more than all", what, text)
	case d%hundred != 0:
		c.fail(n, "", "%s: %s has more than four digits after the point", what, text)
	default:
		return d / hundred, text, true
	}
	return 0, "", false
}
