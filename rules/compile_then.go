package rules

import (
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/verdict"
)

func (c *ruleReader) block(n *yaml.Node) {
	const untilReset = "until-reset"
	s, ok := c.Text(n, "block")
	switch {
	case !ok:
	case s == untilReset:
		c.r.Then.UntilReset = true
	case s == scalar.Forever:
		c.r.Then.Steps = []event.Micros{event.Forever}
	case scalar.Digits(s) == 0:
		c.Fail(n, "a duration such as 5m, until-reset, or forever", "block: %q is no duration%s", scalar.Shortened(s),
			scalar.DidYouMean(s, []string{untilReset, scalar.Forever}))
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
		if item.Value == scalar.Forever {
			c.r.Then.Steps = append(c.r.Then.Steps, event.Forever)
		} else if d, ok := c.duration(item, "escalate"); ok {
			c.r.Then.Steps = append(c.r.Then.Steps, d)
		}
	}
	if len(c.r.Then.Steps) > keystate.MaxSteps {
		c.Fail(n, "", "escalate has %d steps, and may have %d", len(c.r.Then.Steps), keystate.MaxSteps)
	}
}

// readForget reads when steps are forgotten: all at once, or one by one.
func readForget(c *ruleReader, n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		forgetPlace.inside(c, c.File, n)
		return
	}
	c.r.Then.Forget, _ = c.duration(n, "forget")
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
	if word, ok := c.Word(n, "action", verdict.ActionNames()...); ok {
		c.r.Then.Action, _ = verdict.ParseAction(word) // it is one of the names
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
