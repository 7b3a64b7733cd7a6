package rules

import (
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// wordReader looks at names and at values that are compared as text. One that looks like a condition is told,
// unless the file declares that there is such an attribute, or such a value.
type wordReader struct{ *compiler }

// attrName looks at an attribute's name; false for one that is refused.
func (c wordReader) attrName(n *yaml.Node, name string) bool {
	problem, hint, sure := scalar.AttrNameDoubt(name)
	switch {
	case problem == "" || c.declared(name) != nil:
		return true
	case sure:
		return c.Refuse(c.At(n, hint+"; one that has this name is declared in spec.attrs", problem))
	}
	c.Warn(n, hint, "%s", problem)
	return true
}

// dimName is attrName for a key's dimension, where that is an attribute.
func (c wordReader) dimName(n *yaml.Node, dim string) bool {
	name, isAttr := strings.CutPrefix(dim, "attrs.")
	return !isAttr || c.attrName(n, name)
}

// attrValue looks at a value that an attribute is compared with.
func (c wordReader) attrValue(n *yaml.Node, name string) {
	a := c.declared(name)
	if a != nil && a.Values != nil {
		return
	}
	if a == nil || a.Text || a.Bool {
		c.AsWritten(n, "attrs."+name)
	}
	c.valueWord(n, "attrs."+name)
}

// outcomeWord looks at an outcome.
func (c wordReader) outcomeWord(n *yaml.Node) {
	c.AsWritten(n, "outcome")
	c.valueWord(n, "outcome")
}

func (c wordReader) valueWord(n *yaml.Node, field string) {
	if n.Kind != yaml.ScalarNode {
		return
	}
	switch problem, hint, sure := scalar.ValueDoubt(field, document.ValueText(n)); {
	case problem == "":
	case sure:
		c.Refuse(c.At(n, hint, problem))
	default:
		c.Warn(n, hint, "%s", problem)
	}
}
