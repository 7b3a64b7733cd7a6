package rules

import (
	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/verdict"
)

// quota reads whether it is published what keys have left.
func (c *limitReader) quota(n *yaml.Node) {
	if c.l.Quota = c.Bool(n, "quota"); !c.l.Quota {
		return
	}
	r := c.l.Rule
	switch {
	case r.Scope == ScopeInstance:
		c.Fail(n, "leave it out: callers see what is left by each answer, without it", "a rule with scope: instance has no `quota`: nothing of it is published")
	case r.beforehand():
		c.Fail(n, "leave it out: callers see what is left by each permit, without it", "a rule with window: in-flight has no `quota`: it counts permits alone")
	case r.Public == "":
		c.Fail(n, "as in public: searches; it never shows the rule's name", "`quota` needs a `public` name for the rule: callers are told what is left by it")
	case r.Mode == verdict.Shadow:
		c.Warn(n, "", "with mode: shadow nobody is told what is left")
	}
}
