package rules

import (
	"encoding/json"
	"slices"

	"go.yaml.in/yaml/v4"
)

// Notify selects the routes of tallygate notify that tell a rule's verdicts.
type Notify struct {
	Routes []string // by their names, in order; none: all that are about verdicts
}

// AppendJSON appends what an entry of the audit has: true, or the names of routes.
func (n *Notify) AppendJSON(dst []byte) []byte {
	if len(n.Routes) == 0 {
		return append(dst, "true"...)
	}
	names, err := json.Marshal(n.Routes)
	if err != nil {
		return append(dst, "true"...) // texts always marshal
	}
	return append(dst, names...)
}

// readNotify reads whether the rule's verdicts are told to people, and by which routes.
func readNotify(c *ruleReader, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" {
		if c.Bool(n, "notify") {
			c.r.Notify = &Notify{}
		}
		return
	}
	told := &Notify{}
	for _, item := range c.OneOrMore(n, "notify") {
		if slices.Contains([]string{"yes", "no", "on", "off"}, item.Value) {
			c.Fail(item, "write notify: true, or the name of a route, as in notify: oncall", "notify is true or false, or names of routes, not %q", item.Value)
			continue
		}
		name, ok := c.compiler.name(item, "a route's name")
		switch {
		case !ok:
		case slices.Contains(told.Routes, name):
			c.Fail(item, "", "the route %s is named twice", name)
		default:
			told.Routes = append(told.Routes, name)
		}
	}
	slices.Sort(told.Routes)
	c.r.Notify = told
}

// Notified returns, by the names of limits, what the audit says of those whose verdicts are told: see
// Notify.AppendJSON. Candidates' are told to nobody. It is nil when there are none.
func (s *Set) Notified() (by map[string][]byte) {
	for _, l := range s.Limits {
		if l.Rule.Notify == nil || l.Shadow {
			continue
		}
		if by == nil {
			by = map[string][]byte{}
		}
		by[l.Name] = l.Rule.Notify.AppendJSON(nil)
	}
	return by
}
