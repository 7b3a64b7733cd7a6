package rules

import (
	"github.com/cespare/xxhash/v2"
	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// maxTiers bounds how many predicates an event is asked for under one limit.
const maxTiers = 32

// tiers reads a limit's tiers.
func (c *limitReader) tiers(n *yaml.Node, in *place[*limitReader]) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > maxTiers {
		c.Fail(n, `as in tiers: [{when: 'attrs.plan == "pro"', limit: 100}]`, "tiers is a list of up to %d tiers, not %s", maxTiers, emptyOr(n))
		return
	}
	for _, item := range c.Items(n) {
		to, ok := in.object(c.File, item)
		if !ok {
			continue
		}
		if !to.Has("when") {
			c.Fail(item, in.example, "a tier needs `when`: for which events it is")
		}
		var tier Tier
		if n := to.Get("when"); n != nil {
			c.tiersAt[c.l] = append(c.tiersAt[c.l], n)
			tier.when, tier.text, tier.id = c.when(n), n.Value, xxhash.Sum64String(n.Value)>>32|1
			if tier.when != nil && (c.l.Rule.Strict != nil || !c.l.Rule.beforehand()) {
				tier.parts = c.parts(n)
			}
			if tier.parts != nil {
				tier.timed = tier.when.Uses("time")
				c.l.clockStep = c.l.stepOf(&tier)
			}
			if tier.when != nil && c.l.Rule.beforehand() && tier.when.Uses("outcome") {
				c.Fail(n, "leave it out of `when`", "%s", noOutcomeYet)
			}
		}
		limit, unlimited := to.Get("limit"), to.Get("unlimited")
		switch {
		case limit != nil && unlimited != nil:
			c.Fail(unlimited, "", "a tier has `limit` or `unlimited`, not both")
		case limit != nil:
			tier.Limit = limitNumber(c.compiler, limit, "limit", c.l.Rule)
			c.atMost(limit, tier.Limit)
		case unlimited != nil:
			tier.Limit = Unlimited
			if !c.Bool(unlimited, "unlimited") {
				c.Fail(unlimited, "leave it out, and write a limit", "`unlimited` is true, or not there")
			}
		case !to.Has("limit") && !to.Has("unlimited"):
			c.Fail(item, "as in {when: …, limit: 100} or {when: …, unlimited: true}", "a tier needs `limit`")
		}
		c.l.Tiers = append(c.l.Tiers, tier)
	}
}

// candidate reads the limit that is tried beside the live one.
func (c *limitReader) candidate(n *yaml.Node, in *place[*limitReader]) {
	if n.Kind == yaml.ScalarNode {
		c.Fail(n, "write candidate: {limit: "+scalar.Shortened(n.Value)+"}", "candidate is a mapping, not %s", document.Describe(n))
		return
	}
	o, ok := in.object(c.File, n)
	if !ok {
		return
	}
	l := c.l
	if n := o.Get("limit"); n != nil {
		l.Candidate = limitNumber(c.compiler, n, "limit", l.Rule)
		l.Tries = l.Candidate != Unlimited
		c.atMost(n, l.Candidate)
		if l.Tries && l.Candidate == l.Limit {
			c.Warn(n, "", "the candidate's limit is the live one's")
		}
	}
	switch {
	case l.Rule.beforehand():
		c.Fail(n, "leave it out, or write a rule with mode: shadow", "a rule that sees requests alone has no `candidate`: it is tried by verdicts")
	case l.Rule.Then.None:
		c.Fail(n, "give the rule a `then`", "a rule that lets no verdict fall has nothing to try")
	}
}
