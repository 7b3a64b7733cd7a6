package rules

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/rules/when"
)

// Bounds on what is declared.
const (
	maxDeclaredAPIs   = 10_000
	maxDeclaredAttrs  = 1000
	maxDeclaredValues = 1000 // of one attribute
)

// maxGuesses bounds how often all declared names are gone through for the one that was meant.
const maxGuesses = 100

// vocabularyReader reads what a file declares, and refuses what is not.
type vocabularyReader struct {
	*document.File
	vocabulary *Vocabulary // nil: nothing is declared
	guesses    int         // so far
}

// declare reads the vocabulary, ahead of all that uses it. What there is of a vocabulary with mistakes
// refuses nothing: its mistakes come first.
func (c *vocabularyReader) declare(o *document.Object, pattern func(n *yaml.Node) (string, bool)) {
	apis, attrs := o.Get("apis"), o.Get("attrs")
	if apis == nil && attrs == nil {
		return
	}
	v, before := &Vocabulary{}, c.Mistakes()
	if apis != nil {
		c.declareAPIs(apis, v, pattern)
	}
	if attrs != nil {
		c.declareAttrs(attrs, v)
	}
	if c.Mistakes() == before {
		c.vocabulary = v
	}
}

func (c *vocabularyReader) declareAPIs(n *yaml.Node, v *Vocabulary, read func(n *yaml.Node) (string, bool)) {
	if n.Kind == yaml.MappingNode {
		c.Fail(n, "as in apis: [order.*, login]", "apis is a list of names and patterns, not a mapping")
		return
	}
	v.names = map[string]bool{}
	for _, item := range c.OneOrMore(n, "apis") {
		pattern, ok := read(item)
		switch {
		case !ok:
			continue
		case v.names[pattern]:
			c.Fail(item, "leave one of them out", "%q is given twice", pattern)
			continue
		case len(v.apis) == maxDeclaredAPIs:
			c.Fail(item, "write patterns, such as order.*", "there are more than %d APIs", maxDeclaredAPIs)
			return
		}
		v.names[pattern] = true
		v.apis = append(v.apis, pattern)
		if strings.Contains(pattern, "*") {
			v.patterns.add(pattern, apiEntry[int]{})
		}
	}
	slices.Sort(v.apis)
}

func (c *vocabularyReader) declareAttrs(n *yaml.Node, v *Vocabulary) {
	const example = "as in attrs: {amount: number, plan: [free, pro]}"
	if n.Kind != yaml.MappingNode {
		c.Fail(n, example, "attrs is a mapping of names to attrTypes, not %s", document.Describe(n))
		return
	}
	if len(n.Content) == 0 {
		c.Fail(n, "leave it out: then any attribute may be there", "attrs is an empty mapping")
	}
	v.attrs = when.Attrs{}
	pairs, _ := c.Pairs(n, "attrs")
	for _, p := range pairs {
		name := p.Key.Value
		switch {
		case name == "":
			c.Fail(p.Key, "", "an attribute's name is empty")
		case strings.HasPrefix(name, "attrs."):
			c.Fail(p.Key, "write "+scalar.Shortened(strings.TrimPrefix(name, "attrs.")), "names stand without attrs. here: %q", scalar.Shortened(name))
		case document.IsNull(p.Value):
			c.Fail(p.Key, example, "the attribute %q has no type", scalar.Shortened(name))
		case len(v.attrs) == maxDeclaredAttrs:
			c.Fail(p.Key, "", "there are more than %d attributes", maxDeclaredAttrs)
			return
		default:
			v.attrs[name] = c.declaredAttr(p.Value)
		}
	}
}

// attrTypes are the words for what an attribute can be.
var attrTypes = []string{"text", "number", "boolean", "any"}

// declaredAttr reads an attribute's type, or the list of its values.
func (c *vocabularyReader) declaredAttr(n *yaml.Node) *when.Attr {
	if n.Kind == yaml.SequenceNode {
		return c.declaredValues(n)
	}
	if n.Kind == yaml.ScalarNode && !slices.Contains(attrTypes, n.Value) && valueWords["type"][scalar.Folded(n.Value)] == "" && scalar.Closest(n.Value, attrTypes) == "" {
		c.Fail(n, "a type is text, number, boolean or any; the values that there are stand in a list: ["+scalar.Shortened(n.Value)+"]", "%q is no type", scalar.Shortened(n.Value))
		return &when.Attr{}
	}
	word, _ := c.Word(n, "type", attrTypes...)
	return &when.Attr{Text: word == "text" || word == "any", Number: word == "number" || word == "any", Bool: word == "boolean" || word == "any"}
}

func (c *vocabularyReader) declaredValues(n *yaml.Node) *when.Attr {
	a := &when.Attr{}
	if len(n.Content) == 0 || len(n.Content) > maxDeclaredValues {
		c.Fail(n, "with other values it is text, number, boolean or any", "a list of values has 1 to %d of them, not %d", maxDeclaredValues, len(n.Content))
		return a
	}
	for _, item := range c.Items(n) {
		if _, ok := c.Text(item, "an attribute's value"); !ok || !c.PlainNumber(item, "an attribute's value") {
			continue
		}
		text := document.ValueText(item)
		c.AsWritten(item, "an attribute's value")
		switch {
		case text == "":
			c.Fail(item, "leave it out: any attribute may be absent", "an empty attribute is an absent one")
		case !a.List(text):
			c.Fail(item, "leave one of them out", "the value %q is given twice", scalar.Shortened(text))
		}
		switch item.ShortTag() {
		case "!!int", "!!float":
			a.Number = true
		case "!!bool":
			a.Bool = true
		default:
			a.Text = true
		}
	}
	if len(a.Values) == 1 && slices.Contains(attrTypes, a.Values[0]) {
		c.Warn(n, "write "+a.Values[0]+" without brackets", "a list has the values that there are: %q is the only one", a.Values[0])
	}
	return a
}

// knownAPI refuses a name or a pattern that no declared API can be.
func (c *vocabularyReader) knownAPI(n *yaml.Node, pattern string) bool {
	problem, hint := c.unknownAPI(pattern, c.vocabulary.like)
	return problem == "" || c.Refuse(c.At(n, hint, problem))
}

// guess calls when.DidYouMean for the first mistakes.
func (c *vocabularyReader) guess(word string, candidates func() []string) string {
	if c.guesses++; c.guesses > maxGuesses {
		return ""
	}
	return when.DidYouMean(word, candidates)
}

// unknownAPI is Vocabulary.unknownAPI for what is not declared; "" for what is.
func (c *vocabularyReader) unknownAPI(pattern string, candidates func(name string) []string) (problem, hint string) {
	if c.vocabulary.HasAPI(pattern) {
		return "", ""
	}
	return c.vocabulary.unknownAPI(pattern, c.guess, candidates)
}

// knownAttr refuses an attribute that is not declared.
func (c *vocabularyReader) knownAttr(n *yaml.Node, name string) bool {
	if c.vocabulary == nil || c.vocabulary.attrs == nil || c.vocabulary.attrs[name] != nil {
		return true
	}
	problem, hint := c.vocabulary.attrs.Unknown(name, c.guess)
	return c.Refuse(c.At(n, hint, problem))
}

// knownDim is knownAttr for a key's dimension, where that is an attribute.
func (c *vocabularyReader) knownDim(n *yaml.Node, dim string) bool {
	name, attr := strings.CutPrefix(dim, "attrs.")
	return !attr || c.knownAttr(n, name)
}

// knownDimValue is knownValue for a dimension's value, and knownAPI for an API.
func (c *vocabularyReader) knownDimValue(n *yaml.Node, dim, text string) bool {
	if dim == dimAPI {
		return c.knownAPI(n, text)
	}
	name, attr := strings.CutPrefix(dim, "attrs.")
	return !attr || c.knownValue(n, name, text)
}

// numberAttr refuses an attribute that is not declared, or never is a number.
func (c *vocabularyReader) numberAttr(n *yaml.Node, name string) bool {
	a := c.declared(name)
	if a == nil || a.Number {
		return c.knownAttr(n, name)
	}
	return c.Refuse(c.At(n, "its type stands in spec.attrs", "attrs."+scalar.Shortened(name)+" is "+a.String()+", and never a number"))
}

// knownValue refuses a value that a declared attribute never has. text is as events are compared by.
func (c *vocabularyReader) knownValue(n *yaml.Node, name, text string) bool {
	a := c.declared(name)
	if a == nil || text == "" || a.Has(text) {
		return true
	}
	problem, hint := a.Impossible(name, text, c.guess)
	return c.Refuse(c.At(n, hint, problem))
}

// declared returns an attribute's declaration; nil for none.
func (c *vocabularyReader) declared(name string) *when.Attr {
	if c.vocabulary == nil {
		return nil
	}
	return c.vocabulary.attrs[name]
}

// events describes the events for predicates.
func (c *vocabularyReader) events() when.Declared {
	if c.vocabulary == nil {
		return when.Declared{}
	}
	v := c.vocabulary
	return when.Declared{Attrs: v.attrs, Guess: c.guess, API: func(name string) (problem, hint string) { return c.unknownAPI(name, v.likeName) }}
}
