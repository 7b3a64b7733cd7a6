package rules

import (
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// maxSteps bounds escalate and warn.
const maxSteps = 32

// then reads what follows.
func (c *compiler) then(rule *object, r *Rule) {
	r.Then.Action = verdict.ActBlock
	n := rule.get("then")
	if n == nil {
		n = c.defaults.then
	}
	if n == nil || rule.spoilt["then"] {
		if r.Then.None = rule.has("warn"); !rule.has("then") && !r.Then.None {
			c.fail(rule.node, "as in then: {block: 5m} or then: {block: until-reset}", "a rule needs `then`")
		}
		return
	}
	o, ok := c.object(n, "then", "block", "escalate", "forget", "extend", "reset", "at", "action", "apis")
	if !ok {
		return
	}
	if n := o.get("action"); n != nil {
		r.Then.Action = c.action(n)
	}
	if n := o.get("apis"); n != nil {
		r.APIs = nil
		for _, p := range c.apiList(n, "apis") {
			r.APIs = append(r.APIs, p.pattern)
		}
	}
	c.howLong(o, rule, r)
	c.thenFlags(o, r)
}

// howLong reads how long a verdict holds: block or escalate.
func (c *compiler) howLong(o, rule *object, r *Rule) {
	block, escalate := o.get("block"), o.get("escalate")
	switch {
	case block != nil && escalate != nil:
		c.fail(escalate, "the first step is the first block", "then has `block` or `escalate`, not both")
	case block != nil:
		c.block(block, r)
	case escalate != nil:
		c.escalate(escalate, r)
	case o.has("block") || o.has("escalate"):
	case rule.has("warn"):
		r.Then.None = true
	default:
		c.fail(o.node, "as in then: {block: 5m} or then: {block: until-reset}", "then needs `block`")
	}
	forget := o.get("forget")
	switch {
	case forget != nil && escalate == nil:
		c.fail(forget, "", "`forget` belongs to `escalate`")
	case forget != nil:
		r.Then.Forget, _ = c.duration(forget, "forget")
	case escalate != nil && !o.has("forget"):
		c.fail(o.node, "as in forget: 7d: after that the next verdict is a first one again", "`escalate` needs `forget`")
	}
}

func (c *compiler) block(n *yaml.Node, r *Rule) {
	const untilReset = "until-reset"
	s, ok := c.text(n, "block")
	switch {
	case !ok:
	case s == untilReset:
		r.Then.UntilReset = true
	case scalar.Digits(s) == 0:
		c.fail(n, "a duration such as 5m, or until-reset", "block: %q is no duration%s", scalar.Shortened(s),
			scalar.DidYouMean(s, []string{untilReset}))
	default:
		var d event.Micros
		if d, ok = c.duration(n, "block"); ok {
			r.Then.Steps = []event.Micros{d}
		}
	}
}

func (c *compiler) escalate(n *yaml.Node, r *Rule) {
	if n.Kind != yaml.SequenceNode {
		c.fail(n, "as in escalate: [1m, 10m, 1d]", "escalate is a list of durations, not %s", describe(n))
		return
	}
	r.Then.Escalates = true
	for _, item := range c.oneOrMore(n, "escalate") {
		if d, ok := c.duration(item, "escalate"); ok {
			r.Then.Steps = append(r.Then.Steps, d)
		}
	}
	if len(r.Then.Steps) > maxSteps {
		c.fail(n, "", "escalate has %d steps, and may have %d", len(r.Then.Steps), maxSteps)
	}
}

// thenFlags reads extend, reset and at.
func (c *compiler) thenFlags(o *object, r *Rule) {
	for name, flag := range map[string]*bool{"extend": &r.Then.Extend, "reset": &r.Then.Reset} {
		n := o.get(name)
		if n == nil {
			continue
		}
		*flag = c.boolean(n, name)
		if *flag && (r.Then.UntilReset || r.Then.None) {
			c.fail(n, "as in block: 5m; a quota ends with its window", "`%s` is for penalties only", name)
		}
	}
	if n := o.get("at"); n != nil {
		switch word, _ := c.word(n, "at", "reached", "exceeded"); word {
		case "reached":
			r.Then.At = AtReached
		case "exceeded":
			r.Then.At = AtExceeded
		}
	}
}

func (c *compiler) action(n *yaml.Node) verdict.Action {
	switch word, _ := c.word(n, "action", "block", "challenge", "throttle", "log"); word {
	case "challenge":
		return verdict.ActChallenge
	case "throttle":
		return verdict.ActThrottle
	case "log":
		return verdict.ActLog
	}
	return verdict.ActBlock
}

// notices reads warn, which stands beside then.
func (c *compiler) notices(o *object, r *Rule) {
	if n := o.get("warn"); n != nil {
		r.warn = c.warnSteps(n)
	}
}

func (c *compiler) warnSteps(n *yaml.Node) (steps []WarnStep) {
	for _, item := range c.oneOrMore(n, "warn") {
		share, text, ok := c.percentage(item, "warn")
		switch {
		case !ok:
		case slices.ContainsFunc(steps, func(s WarnStep) bool { return s.Share == share }):
			c.fail(item, "leave one of them out", "%s is given twice", text)
		default:
			steps = append(steps, WarnStep{Text: text, Share: share})
		}
	}
	if len(steps) > maxSteps {
		c.fail(n, "", "warn has %d steps, and may have %d", len(steps), maxSteps)
	}
	slices.SortFunc(steps, func(a, b WarnStep) int { return int(a.Share - b.Share) })
	return steps
}

// fuse reads the share of a partition's keys that a rule may block.
func (c *compiler) fuse(o *object, r *Rule) {
	n := o.get("fuse")
	if n == nil {
		return
	}
	share, _, ok := c.percentage(n, "fuse")
	if ok && r.Then.None {
		c.fail(n, "leave `fuse` out, or give the rule a `then`", "a rule that blocks nothing needs no fuse")
	}
	r.Fuse = share
}
