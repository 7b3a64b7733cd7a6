package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// defaults are what spec.defaults gives to rules that don't say otherwise.
type defaults struct {
	key    []string
	mode   verdict.Mode
	then   *yaml.Node
	window windowFields
}

func standardDefaults() defaults { return defaults{key: []string{"uid"}} }

// readDefaults reads spec.defaults, so that a mistake in it is reported also without rules.
func (c *compiler) readDefaults(n *yaml.Node) {
	o, ok := c.object(n, "defaults", "key", "window", "mode", "timezone", "week_starts", "then")
	if !ok {
		return
	}
	if n := o.get("key"); n != nil {
		if dims := c.dims(n); dims != nil {
			c.defaults.key = dims
		}
	}
	if n := o.get("mode"); n != nil {
		c.defaults.mode = c.mode(n)
	}
	if n := o.get("then"); n != nil {
		c.then(o, &Rule{})
		c.defaults.then = n
	}
	c.defaults.window = windowFieldsOf(o)
	if n := o.get("window"); n != nil {
		c.windowKind(n)
	}
	if n := o.get("timezone"); n != nil {
		c.zone(n)
	}
	if n := o.get("week_starts"); n != nil {
		c.weekStarts(n)
	}
}

// compileRule reads one rule and adds it, with its limits, to the set.
func (c *compiler) compileRule(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		c.rule = nameOf(n)
	}
	known := append([]string{
		"name", "public", "key", "match", "when", "count", "refunds", "limit", "limits", "tiers", "candidate", "then", "warn", "mode", "exempt", "fuse",
	}, windowFieldNames...)
	o, ok := c.object(n, "a rule", known...)
	if !ok {
		return
	}
	c.required(o, "a rule", "name", "match")
	r := &Rule{Index: len(c.set.Rules), Mode: c.defaults.mode}
	r.Name, _ = c.name(o.get("name"), "a rule's name")
	c.uniqueName(o.get("name"), r.Name)
	if r.Name == ManualRule {
		c.fail(o.get("name"), "give the rule another name", "%q is what verdicts by command are called", ManualRule)
	}
	r.Public, _ = c.name(o.get("public"), "a rule's public name")
	dims := c.defaults.key
	if n := o.get("key"); n != nil {
		dims = c.dims(n)
	}
	r.Shape = c.shape(dims)
	if n := o.get("mode"); n != nil {
		r.Mode = c.mode(n)
	}
	if n := o.get("count"); n != nil {
		c.count(n, r)
	}
	c.refunds(o, r)
	if n := o.get("match"); n != nil {
		c.match(n, r)
	}
	if n := o.get("when"); n != nil {
		r.match.when = c.when(n)
	}
	c.notices(o, r)
	c.then(o, r)
	c.fuse(o, r)
	c.limits(o, r)
	if n := o.get("exempt"); n != nil {
		r.exempt = c.exemptions(n, r)
	}
	c.warnPartial(o, r)
	c.set.Rules = append(c.set.Rules, r)
}

// nameOf finds the rule's name before anything of it is read, for the errors in it.
func nameOf(n *yaml.Node) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "name" && n.Content[i+1].Kind == yaml.ScalarNode {
			return n.Content[i+1].Value
		}
	}
	return ""
}

func (c *compiler) uniqueName(n *yaml.Node, name string) {
	if name == "" {
		return
	}
	if line, twice := c.names[name]; twice {
		c.fail(n, "give one of them another name: a rule's counters are kept under its name", "a rule named %q is already on line %d", name, line)
		return
	}
	c.names[name] = n.Line
}

// dims reads the dimensions of a key, sorted; nil when there is a mistake.
func (c *compiler) dims(n *yaml.Node) []string {
	var out []string
	for _, item := range c.oneOrMore(n, "key") {
		dim, ok := c.text(item, "a key's dimension")
		switch {
		case !ok:
			return nil
		case !event.IsDim(dim):
			guess := scalar.DidYouMean(dim, []string{"uid", "ip", "ip/64"})
			if meant := dimensionWords[scalar.Folded(dim)]; meant != "" {
				guess = fmt.Sprintf("; did you mean %q?", meant)
			}
			c.fail(item, "dimensions are uid, ip, ip/64 and, for an attribute, attrs.NAME", "%q is no dimension%s", scalar.Shortened(dim), guess)
			return nil
		case slices.Contains(out, dim):
			c.fail(item, "leave one of them out", "the dimension %q is given twice", dim)
			return nil
		}
		out = append(out, dim)
	}
	slices.Sort(out)
	return out
}

// shape returns the set's shape of these dimensions.
func (c *compiler) shape(dims []string) *KeyShape {
	for _, s := range c.set.Shapes {
		if slices.Equal(s.Dims, dims) {
			return s
		}
	}
	s := &KeyShape{Dims: dims, HasUID: slices.Contains(dims, "uid"), Index: len(c.set.Shapes)}
	c.set.Shapes = append(c.set.Shapes, s)
	return s
}

// warnPartial warns that a check, which knows the API but not the outcome or the attributes,
// blocks more than what the rule counts.
func (c *compiler) warnPartial(o *object, r *Rule) {
	m := &r.match
	if len(m.outcomes) == 0 && len(m.attrs) == 0 && m.when == nil || r.Then.Action == verdict.ActLog || r.Then.None {
		return
	}
	then := cmp.Or(o.get("then"), c.defaults.then)
	if then == nil || slices.ContainsFunc(then.Content, func(n *yaml.Node) bool { return n.Value == "apis" }) {
		return
	}
	c.warn(cmp.Or(o.get("then"), o.node), "name what is to be blocked in then: {apis: […]}, when it is something else",
		"the rule counts only some events of %s, but blocks all of it", strings.Join(r.APIs, ", "))
}
