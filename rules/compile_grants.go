package rules

// checkGrants reports a limit that takes no grants.
func checkGrants(c *limitReader) {
	switch n := c.o.Get("grants"); {
	case n == nil:
	case c.l.Rule.Scope == ScopeInstance, c.l.Rule.beforehand():
		c.Fail(n, "leave it out", "a rule that sees requests alone has no `grants`: it takes none")
	case c.l.Rule.Strict != nil:
		c.Fail(n, "leave it out, or `strict`", "a strict rule has no `grants`: it takes none")
	case c.l.Window.Kind.HasRate():
		c.Fail(n, "leave it out", "a %v has no `grants`: it takes none", c.l.Window.Kind)
	}
}
