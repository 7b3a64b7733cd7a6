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

func (c *ruleReader) key(n *yaml.Node) {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		if c.r.Shape = newShape(nil); c.r.Scope != ScopeInstance {
			c.Fail(n, "leave the field out, or put something into the list; only with scope: instance [] counts all requests together", "key is an empty list")
		}
		return
	}
	c.r.Shape = newShape(c.dims(n, c.r.Scope))
}

// dims reads the dimensions of a key, sorted; nil when there is a mistake.
func (c *compiler) dims(n *yaml.Node, scope Scope) []string {
	var out []string
	for _, item := range c.OneOrMore(n, "key") {
		dim, ok := c.Text(item, "a key's dimension")
		switch {
		case !ok:
			return nil
		case slices.Contains(out, dim):
			c.Fail(item, "leave one of them out", "the dimension %q is given twice", dim)
			return nil
		case dim == dimAPI && scope == ScopeInstance:
		case dim == dimAPI:
			c.Fail(item, "with scope: instance each process counts by API; elsewhere a rule for each API is one, or an attribute with its name",
				"only a rule with scope: instance counts by api")
			return nil
		case !event.IsDim(dim):
			guess := scalar.DidYouMean(dim, []string{"uid", "ip", "ip/64"})
			if meant := dimensionWords[scalar.Folded(dim)]; meant != "" {
				guess = fmt.Sprintf("; did you mean %q?", meant)
			}
			c.Fail(item, "dimensions are uid, ip, ip/64 and, for an attribute, attrs.NAME", "%q is no dimension%s", scalar.Shortened(dim), guess)
			return nil
		}
		out = append(out, dim)
	}
	slices.Sort(out)
	return out
}

// dimAPI is a dimension of keys that only ScopeInstance has.
const dimAPI = "api"

func newShape(dims []string) *KeyShape {
	return &KeyShape{Dims: dims, HasUID: slices.Contains(dims, "uid")}
}

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
