package rules

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/verdict"
)

// resetReader reads which events empty a rule's windows.
type resetReader struct{ *ruleReader }

func (c resetReader) reset() {
	n := c.o.Get("reset_on")
	if n == nil {
		return
	}
	c.r.reset = &reset{}
	o, ok := resetPlace.objectAnd(c.File, n, func(p document.Pair) bool { return c.attrField(&c.r.reset.match, p) })
	resetPlace.read(c, o)
	if ok && c.r.alwaysResets() {
		c.Warn(n, "let it ask for another API, or another outcome, than match", "every event that the rule matches resets it, so nothing is ever counted")
	}
	switch r := c.r; {
	case r.beforehand():
		c.Fail(n, "leave it out: no request says how an action ends", "a rule that sees requests alone has no `reset_on`")
	case ok && r.reset.clear && r.Then.UntilReset:
		c.Fail(o.At("clear"), "leave it out: the reset ends the quota when it empties the window", "`clear` is for penalties")
	case ok && r.reset.clear && r.Then.None:
		c.Fail(o.At("clear"), "leave it out, or give the rule a `then`", "a rule that blocks nothing has nothing to clear")
	}
}

// alwaysResets reports whether each event that matches the rule resets it, too.
func (r *Rule) alwaysResets() bool {
	m, x := &r.match, &r.reset.match
	within := func(some, all []string) bool {
		among := newAttrMatch("", all)
		return len(all) == 0 || len(some) > 0 && !slices.ContainsFunc(some, func(s string) bool { return !among.has(s) })
	}
	resets, patterns := map[string]bool{}, []string(nil)
	for _, b := range x.apis {
		if resets[b.pattern] = true; strings.Contains(b.pattern, "*") {
			patterns = append(patterns, b.pattern)
		}
	}
	for i, a := range m.apis {
		if !resets[a.pattern] && !slices.ContainsFunc(patterns, func(b string) bool { return b == "*" || verdict.MatchAPI(b, a.pattern) }) {
			return false
		}
		if (i+1)*len(patterns) > maxOverlaps {
			return false // only a warning depends on it
		}
	}
	for _, want := range x.attrs {
		if !slices.ContainsFunc(m.attrs, func(has attrMatch) bool { return has.name == want.name && within(has.values, want.values) }) {
			return false
		}
	}
	switch {
	case len(m.apis) == 0:
		return false
	case len(x.outcomes) == 0: // all of them, or all but one
		return x.anyOutcome || !m.takes(event.OutcomeLimited)
	}
	return within(m.outcomes, x.outcomes)
}

func (c resetReader) api(n *yaml.Node) { c.r.reset.match.apis = c.apiList(n, "api") }

func (c resetReader) attrs(n *yaml.Node) { c.attrsOf(&c.r.reset.match, n) }
