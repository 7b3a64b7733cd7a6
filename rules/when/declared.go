package when

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// Declared describes the events that there may be, as far as it is known. The zero value says nothing.
type Declared struct {
	Attrs Attrs
	API   func(name string) (problem, hint string) // says of a name that no API has it; nil: any may
	Guess Guess
}

// Guess finds the candidate that a word was probably meant to be, as text behind a message. There may be thousands of
// candidates, and of mistakes.
type Guess func(word string, candidates func() []string) string

// DidYouMean is the Guess that goes through all candidates.
func DidYouMean(word string, candidates func() []string) string {
	return scalar.DidYouMean(word, candidates())
}

// Attrs are the attributes that there are, by name. Nil says nothing: any attribute may be anything.
type Attrs map[string]*Attr

// Attr describes the values of an attribute.
type Attr struct {
	Text, Number, Bool bool
	Values             []string // as text; nil: any of these types

	listed map[string]bool // Values
}

// List adds a value, as text, to those that the attribute has; false for one that is among them.
func (a *Attr) List(text string) bool {
	if a.listed[text] {
		return false
	}
	if a.listed == nil {
		a.listed = map[string]bool{}
	}
	a.listed[text] = true
	a.Values = append(a.Values, text)
	return true
}

// Has reports whether the attribute may have a value, by its text.
func (a *Attr) Has(text string) bool {
	if a.Values != nil {
		return a.listed[text]
	}
	number, isNumber := event.CanonicalNumber(text)
	return a.Text || a.Number && isNumber && number == text || a.Bool && (text == "true" || text == "false")
}

// Fits reports whether the attribute may have a value of a kind.
func (a *Attr) Fits(kind event.Kind) bool {
	return kind == event.String && a.Text || kind == event.Number && a.Number || kind == event.Bool && a.Bool
}

// String says in messages what the attribute can be.
func (a *Attr) String() string {
	if len(a.Values) == 1 {
		return strconv.Quote(a.Values[0])
	}
	if a.Values != nil {
		return "one of " + scalar.Shortened(strings.Join(a.Values, ", "))
	}
	return (a.kinds() &^ isNil).String()
}

func (a *Attr) kinds() kinds {
	k := isNil
	if a.Text {
		k |= isText
	}
	if a.Number {
		k |= isNumber
	}
	if a.Bool {
		k |= isBool
	}
	return k
}

// Unknown says that an attribute is not declared, with what was probably meant.
func (as Attrs) Unknown(name string, guess Guess) (problem, hint string) {
	names := func() []string { return slices.Sorted(maps.Keys(as)) }
	return "attrs." + scalar.Shortened(name) + " is not declared" + guess(name, names),
		"an attribute that there is has a line in spec.attrs"
}

// Impossible says that a declared attribute never has a value, with what was probably meant.
func (a *Attr) Impossible(name, text string, guess Guess) (problem, hint string) {
	hint = "values that there are stand in spec.attrs"
	if a.Values == nil {
		hint = "its type stands in spec.attrs"
	}
	return "attrs." + scalar.Shortened(name) + " is " + a.String() + ", and never " + strconv.Quote(scalar.Shortened(text)) + guess(text, func() []string { return a.Values }), hint
}

// known refuses a name of an attribute that is not declared.
func (v *typeCheck) known(at ast.Node, name string) {
	if _, ok := v.events.Attrs[name]; ok || v.events.Attrs == nil {
		return
	}
	problem, hint := v.events.Attrs.Unknown(name, v.events.Guess)
	v.fail(at, hint, problem)
}

// declared returns an attribute's declaration, and its name; nil for what is none, or is not declared.
func (v *typeCheck) declared(n ast.Node) (*Attr, string) {
	switch n := n.(type) {
	case *ast.ChainNode:
		return v.declared(n.Node)
	case *ast.IdentifierNode:
		if value := v.lets[n.Value]; value != nil {
			return v.declared(value)
		}
	case *ast.MemberNode:
		if name, ok := n.Property.(*ast.StringNode); ok && isAttribute(n) {
			return v.events.Attrs[name.Value], name.Value
		}
	}
	return nil, ""
}

// listed refuses a constant that an attribute never has, by the list of its values.
func (v *typeCheck) listed(variable, value ast.Node) {
	a, name := v.declared(variable)
	if a == nil || a.Values == nil {
		return
	}
	if text, ok := constantText(value); ok && text != "" && !a.Has(text) {
		problem, hint := a.Impossible(name, text, v.events.Guess)
		v.fail(value, hint, problem)
	}
}

// constantText is a constant as events have it.
func constantText(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.BoolNode:
		return strconv.FormatBool(n.Value), true
	case *ast.IntegerNode:
		return strconv.Itoa(n.Value), true
	case *ast.FloatNode:
		return event.CanonicalNumber(strconv.FormatFloat(n.Value, 'f', -1, 64))
	case *ast.UnaryNode:
		text, ok := constantText(n.Node)
		if _, isText := n.Node.(*ast.StringNode); !ok || isText || n.Operator != "-" {
			return "", false
		}
		return event.CanonicalNumber("-" + text)
	}
	return "", false
}
