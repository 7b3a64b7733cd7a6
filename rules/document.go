package rules

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// Document is a YAML file beside rule files, such as one of tests, whose mistakes are told as those of rule files are: all of
// them, each with its place, its line, a caret, and what was meant.
type Document struct {
	Root *yaml.Node

	c *compiler
}

// Fields are those of a mapping in a Document.
type Fields struct {
	Node *yaml.Node

	o *object
}

// ParseDocument reads a file that holds one YAML document. what says in errors what the file is, such as
// "a file of tests".
func ParseDocument(file string, src []byte, what string) (*Document, error) {
	d := &Document{c: &compiler{src: newSource(file, src), set: &Set{}, glued: map[*yaml.Node]bool{}}}
	root, bad := parseYAML(src, d.c.src)
	switch {
	case bad != nil && bad.Message == noRuleSet:
		bad.Message, bad.Hint = "the file is empty: "+what+" is expected", ""
		return nil, Errors{bad}
	case bad != nil && bad.Message == secondDocument:
		bad.Hint = what + " is one document: put the other into a file of its own"
		return nil, Errors{bad}
	case bad != nil:
		return nil, Errors{bad}
	}
	d.c.errs = d.c.src.invisible(root, true)
	d.Root = d.c.resolve(root)
	return d, nil
}

// Err is an Errors of every mistake so far, in the order of the file; nil when there is none.
func (d *Document) Err() error {
	if len(d.c.errs) == 0 {
		return nil
	}
	return d.c.errs.sorted()
}

// Mistakes is how many were reported so far.
func (d *Document) Mistakes() int { return len(d.c.errs) }

// Fail reports a mistake at a node. hint says what to write instead, or is "".
func (d *Document) Fail(n *yaml.Node, hint, format string, args ...any) {
	d.c.fail(n, hint, format, args...)
}

// Fields reads a mapping with known fields. Others, and those that are there twice, are mistakes. It is false for what is no
// mapping.
func (d *Document) Fields(n *yaml.Node, what string, known ...string) (Fields, bool) {
	o, ok := d.c.object(n, what, known...)
	return Fields{n, o}, ok
}

// Get returns a field's value, nil when it is absent.
func (f Fields) Get(name string) *yaml.Node { return f.o.get(name) }

// Has reports whether a field is there, rightly or wrongly.
func (f Fields) Has(name string) bool { return f.o.has(name) }

// At returns a field's value, or the whole mapping when it is absent: where a mistake is reported.
func (f Fields) At(name string) *yaml.Node {
	if n := f.o.get(name); n != nil {
		return n
	}
	return f.Node
}

// Text returns a scalar's text. It is false, and reported, for what is none.
func (d *Document) Text(n *yaml.Node, what string) (string, bool) { return d.c.text(n, what) }

// Word returns a scalar that is one of some words; others are mistakes.
func (d *Document) Word(n *yaml.Node, what string, words ...string) (string, bool) {
	return d.c.word(n, what, words...)
}

// List returns a list's values; what is no list is a mistake.
func (d *Document) List(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		d.c.fail(n, "", "%s is a list, not %s", what, describe(n))
		return nil
	}
	return d.c.items(n)
}

// Duration returns a duration as rules have it, also zero.
func (d *Document) Duration(n *yaml.Node, what string) (event.Micros, bool) {
	s, ok := d.c.text(n, what)
	if !ok {
		return 0, false
	}
	span, err := scalar.ParseDuration(s)
	if err != nil {
		d.c.fail(n, scalar.DurationHint(s), "%s: %v", what, err)
	}
	return span, err == nil
}

// Attrs returns attributes as an event has them.
func (d *Document) Attrs(n *yaml.Node) (out []event.Attr) {
	pairs, _ := d.c.pairs(n, "attrs")
	for _, p := range pairs {
		name := "attrs." + p.key.Value
		if isNull(p.value) {
			continue // absent, as in an event
		}
		if p.value.Kind == yaml.MappingNode || p.value.Kind == yaml.SequenceNode {
			d.c.fail(p.value, "write it as several attributes", "%s: an attribute is a string, a number or a boolean, not %s", name, describe(p.value))
			continue
		}
		text, ok := d.c.text(p.value, name)
		if !ok || !d.c.plainNumber(p.value, name) {
			continue
		}
		value := event.Value{Kind: event.String, Text: text}
		switch p.value.ShortTag() {
		case "!!bool":
			value.Kind, value.Text = event.Bool, valueText(p.value)
		case "!!int", "!!float":
			number, ok := event.CanonicalNumber(valueText(p.value))
			if !ok {
				d.c.fail(p.value, "", "%s: %s is no number that an event can have", name, text)
			}
			value.Kind, value.Text = event.Number, number
		}
		out = append(out, event.Attr{Name: p.key.Value, Value: value})
	}
	return out
}

// DidYouMean returns `; did you mean "x"?` for the candidate that a word is probably a slip of, or nothing.
func DidYouMean(word string, candidates []string) string { return scalar.DidYouMean(word, candidates) }

// OneOf lists words for a hint, shortened when there are many.
func OneOf(words []string) string {
	const most = 8
	if len(words) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
	}
	return strings.Join(words, ", ")
}
