package rules

import (
	"cmp"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// then reads what follows.
func (c *ruleReader) then() {
	t := &c.r.Then
	t.Action = verdict.ActBlock
	n := cmp.Or(c.o.Get("then"), c.defaults.then)
	if n == nil || c.o.Spoilt("then") {
		if t.None = c.o.Has("warn"); !c.o.Has("then") && !t.None {
			c.Fail(c.o.Node, "as in then: {block: 5m} or then: {block: until-reset}", "a rule needs `then`")
		}
		return
	}
	o, ok := thenPlace.object(c.File, n)
	if !ok {
		return
	}
	if t.None = !o.Has("block") && !o.Has("escalate") && c.o.Has("warn"); !t.None {
		c.howLong(o)
	}
	forget, escalate := o.Get("forget"), o.Get("escalate")
	switch {
	case forget != nil && escalate == nil:
		c.Fail(forget, "", "`forget` belongs to `escalate`")
	case escalate != nil && !o.Has("forget"):
		c.Fail(o.Node, "as in forget: 7d: after that the next verdict is a first one again", "`escalate` needs `forget`")
	}
	thenPlace.read(c, o)
}

// howLong reports when it is not said how long a verdict holds, by block or escalate, or said twice.
func (c *ruleReader) howLong(o *document.Object) {
	switch {
	case o.Get("block") != nil && o.Get("escalate") != nil:
		c.Fail(o.Get("escalate"), "the first step is the first block", "then has `block` or `escalate`, not both")
	case !o.Has("block") && !o.Has("escalate"):
		c.Fail(o.Node, "as in then: {block: 5m} or then: {block: until-reset}", "then needs `block`")
	}
}

func (c *ruleReader) block(n *yaml.Node) {
	const untilReset = "until-reset"
	s, ok := c.Text(n, "block")
	switch {
	case !ok:
	case s == untilReset:
		c.r.Then.UntilReset = true
	case scalar.Digits(s) == 0:
		c.Fail(n, "a duration such as 5m, or until-reset", "block: %q is no duration%s", scalar.Shortened(s),
			scalar.DidYouMean(s, []string{untilReset}))
	default:
		var d event.Micros
		if d, ok = c.duration(n, "block"); ok {
			c.r.Then.Steps = []event.Micros{d}
		}
	}
}

func (c *ruleReader) escalate(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		c.Fail(n, "as in escalate: [1m, 10m, 1d]", "escalate is a list of durations, not %s", document.Describe(n))
		return
	}
	c.r.Then.Escalates = true
	for _, item := range c.OneOrMore(n, "escalate") {
		if d, ok := c.duration(item, "escalate"); ok {
			c.r.Then.Steps = append(c.r.Then.Steps, d)
		}
	}
	if len(c.r.Then.Steps) > keystate.MaxSteps {
		c.Fail(n, "", "escalate has %d steps, and may have %d", len(c.r.Then.Steps), keystate.MaxSteps)
	}
}

// penaltyOnly reads a flag that quotas don't have.
func (c *ruleReader) penaltyOnly(n *yaml.Node, name string) bool {
	flag := c.Bool(n, name)
	if flag && (c.r.Then.UntilReset || c.r.Then.None) {
		c.Fail(n, "as in block: 5m; a quota ends with its window", "`%s` is for penalties only", name)
	}
	return flag
}

func (c *ruleReader) at(n *yaml.Node) {
	switch word, _ := c.Word(n, "at", "reached", "exceeded"); word {
	case "reached":
		c.r.Then.At = AtReached
	case "exceeded":
		c.r.Then.At = AtExceeded
	}
}

func (c *ruleReader) action(n *yaml.Node) {
	switch word, _ := c.Word(n, "action", "block", "challenge", "throttle", "log"); word {
	case "challenge":
		c.r.Then.Action = verdict.ActChallenge
	case "throttle":
		c.r.Then.Action = verdict.ActThrottle
	case "log":
		c.r.Then.Action = verdict.ActLog
	}
}

// covers reads which APIs a verdict covers.
func (c *ruleReader) covers(n *yaml.Node) {
	c.r.APIs = nil
	for _, p := range c.apiList(n, "apis") {
		c.r.APIs = append(c.r.APIs, p.pattern)
	}
}

// warn reads the notices on the way to a limit.
func (c *ruleReader) warn(n *yaml.Node) {
	var steps []WarnStep
	for _, item := range c.OneOrMore(n, "warn") {
		share, text, ok := c.percentage(item, "warn")
		switch {
		case !ok:
		case slices.ContainsFunc(steps, func(s WarnStep) bool { return s.Share == share }):
			c.Fail(item, "leave one of them out", "%s is given twice", text)
		default:
			steps = append(steps, WarnStep{Text: text, Share: share})
		}
	}
	if len(steps) > keystate.MaxSteps {
		c.Fail(n, "", "warn has %d steps, and may have %d", len(steps), keystate.MaxSteps)
	}
	slices.SortFunc(steps, func(a, b WarnStep) int { return int(a.Share - b.Share) })
	c.r.warn = steps
}

// fuse reads the share of a partition's keys that a rule may block.
func (c *ruleReader) fuse() {
	n := c.o.Get("fuse")
	if n == nil {
		return
	}
	share, _, ok := c.percentage(n, "fuse")
	if ok && c.r.Then.None {
		c.Fail(n, "leave `fuse` out, or give the rule a `then`", "a rule that blocks nothing needs no fuse")
	}
	c.r.Fuse = share
}
