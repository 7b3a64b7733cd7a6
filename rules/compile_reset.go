package rules

import (
	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/document"
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
	switch r := c.r; {
	case r.beforehand():
		c.Fail(n, "leave it out: no request says how an action ends", "a rule that sees requests alone has no `reset_on`")
	case ok && r.reset.clear && r.Then.UntilReset:
		c.Fail(o.At("clear"), "leave it out: the reset ends the quota when it empties the window", "`clear` is for penalties")
	case ok && r.reset.clear && r.Then.None:
		c.Fail(o.At("clear"), "leave it out, or give the rule a `then`", "a rule that blocks nothing has nothing to clear")
	}
}

func (c resetReader) api(n *yaml.Node) { c.r.reset.match.apis = c.apiList(n, "api") }

func (c resetReader) attrs(n *yaml.Node) { c.attrsOf(&c.r.reset.match, n) }
