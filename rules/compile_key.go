package rules

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

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

func (c *ruleReader) key(n *yaml.Node) {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		if c.r.Shape = newShape(nil); c.r.Scope != ScopeInstance {
			c.Fail(n, "to count all events together write key: all; without the field a rule counts by uid", "key is an empty list")
		}
		return
	}
	c.r.Shape = newShape(c.dims(n))
}

// dims reads the dimensions of a key, sorted; nil when there is a mistake.
func (c *compiler) dims(n *yaml.Node) []string {
	var out []string
	for _, item := range c.OneOrMore(n, "key") {
		dim, ok := c.Text(item, "a key's dimension")
		switch {
		case !ok:
			return nil
		case slices.Contains(out, dim):
			c.Fail(item, "leave one of them out", "the dimension %q is given twice", dim)
			return nil
		case !event.IsDim(dim):
			c.noDim(item, dim)
			return nil
		case !(wordReader{c}).dimName(item, dim) || !c.knownDim(item, dim):
			return nil
		}
		out = append(out, dim)
	}
	if len(out) > 1 && slices.Contains(out, dimAll) {
		c.Fail(n, "write key: all, or leave all out", "all counts all events together, and goes with no other dimension")
		return nil
	}
	slices.Sort(out)
	return out
}

// noDim reports a name that is none of a dimension.
func (c *compiler) noDim(n *yaml.Node, dim string) {
	if hint := event.AddressDimHint(dim); hint != "" {
		c.Fail(n, hint, "%q is no dimension", scalar.Shortened(dim))
		return
	}
	guess := scalar.DidYouMean(dim, plainDims)
	if meant := dimensionWords[scalar.Folded(dim)]; meant != "" {
		guess = fmt.Sprintf("; did you mean %q?", meant)
	}
	c.Fail(n, "dimensions are "+event.Dimensions, "%q is no dimension%s", scalar.Shortened(dim), guess)
}

// Dimensions that every event has.
const (
	dimAPI   = "api"
	dimAll   = "all"
	allValue = "true" // the only value of all
)

// plainDims are dimensions to guess at when a name is misspelt.
var plainDims = []string{"uid", "ip", "ip/24", "ip/64", dimAPI, dimAll}

func newShape(dims []string) *KeyShape {
	return &KeyShape{Dims: dims, HasUID: slices.Contains(dims, "uid"), parts: keyDims(dims)}
}

// hasAPI reports whether the shape has a key for each API.
func (k *KeyShape) hasAPI() bool { return slices.Contains(k.dims(), dimAPI) }

// shape returns the set's shape that is like another one.
func (c *compiler) shape(like *KeyShape) *KeyShape {
	for _, s := range c.set.Shapes {
		if slices.Equal(s.Dims, like.Dims) {
			return s
		}
	}
	like.Index = len(c.set.Shapes)
	c.set.Shapes = append(c.set.Shapes, like)
	return like
}
