package rules

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
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
