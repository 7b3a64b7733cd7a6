package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules/document"
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
	o, ok := defaultsPlace.object(c.File, n)
	if !ok {
		return
	}
	defaultsPlace.read(c, o)
	if n := o.Get("then"); n != nil {
		(&ruleReader{compiler: c, r: &Rule{}, o: o}).then()
		c.defaults.then = n
	}
	c.defaults.window = windowFieldsOf(o)
}

// ruleReader reads one rule.
type ruleReader struct {
	*compiler
	r *Rule
	o *document.Object // the rule as it is written
}

// rule reads one rule and adds it, with its limits, to the set.
func (c *compiler) rule(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		c.Rule = nameOf(n)
	}
	o, ok := rulePlace.object(c.File, n)
	if !ok {
		return
	}
	r := &Rule{Index: len(c.set.Rules), Mode: c.defaults.mode}
	if o.Get("key") == nil {
		r.Shape = c.shape(c.defaults.key)
	}
	rr := &ruleReader{compiler: c, r: r, o: o}
	rulePlace.read(rr, o)
	rr.then()
	rr.fuse()
	rr.limits()
	rr.warnPartial()
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

func (c *ruleReader) name(n *yaml.Node) {
	name, ok := c.compiler.name(n, "a rule's name")
	if !ok {
		return
	}
	if c.r.Name = name; name == ManualRule {
		c.Fail(n, "give the rule another name", "%q is what verdicts by command are called", ManualRule)
	}
	if line, twice := c.names[name]; twice {
		c.Fail(n, "give one of them another name: a rule's counters are kept under its name", "a rule named %q is already on line %d", name, line)
		return
	}
	c.names[name] = n.Line
}

func (c *ruleReader) key(n *yaml.Node) { c.r.Shape = c.shape(c.dims(n)) }

// dims reads the dimensions of a key, sorted; nil when there is a mistake.
func (c *compiler) dims(n *yaml.Node) []string {
	var out []string
	for _, item := range c.OneOrMore(n, "key") {
		dim, ok := c.Text(item, "a key's dimension")
		switch {
		case !ok:
			return nil
		case !event.IsDim(dim):
			guess := scalar.DidYouMean(dim, []string{"uid", "ip", "ip/64"})
			if meant := dimensionWords[scalar.Folded(dim)]; meant != "" {
				guess = fmt.Sprintf("; did you mean %q?", meant)
			}
			c.Fail(item, "dimensions are uid, ip, ip/64 and, for an attribute, attrs.NAME", "%q is no dimension%s", scalar.Shortened(dim), guess)
			return nil
		case slices.Contains(out, dim):
			c.Fail(item, "leave one of them out", "the dimension %q is given twice", dim)
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
func (c *ruleReader) warnPartial() {
	r, o := c.r, c.o
	m := &r.match
	if len(m.outcomes) == 0 && len(m.attrs) == 0 && m.when == nil || r.Then.Action == verdict.ActLog || r.Then.None {
		return
	}
	then := cmp.Or(o.Get("then"), c.defaults.then)
	if then == nil || slices.ContainsFunc(then.Content, func(n *yaml.Node) bool { return n.Value == "apis" }) {
		return
	}
	c.Warn(o.At("then"), "name what is to be blocked in then: {apis: […]}, when it is something else",
		"the rule counts only some events of %s, but blocks all of it", strings.Join(r.APIs, ", "))
}
