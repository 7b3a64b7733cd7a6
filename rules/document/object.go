package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// Object is a YAML mapping with known fields.
type Object struct {
	Node *yaml.Node

	fields map[string]*yaml.Node // the values that are there
	spoilt map[string]bool       // fields that are there in some wrong way: don't call them missing
	merged bool                  // fields come from somewhere else, which is refused
}

// Get returns a field's value; nil when it is absent.
func (o *Object) Get(name string) *yaml.Node { return o.fields[name] }

// At returns a field's value, or the whole mapping when it is absent: where a mistake is reported.
func (o *Object) At(name string) *yaml.Node { return cmp.Or(o.fields[name], o.Node) }

// Spoilt reports whether the field is there in some wrong way, which was reported.
func (o *Object) Spoilt(name string) bool { return o.spoilt[name] }

// Sound reports whether nothing was wrong with the mapping's fields.
func (o *Object) Sound() bool { return len(o.spoilt) == 0 && !o.merged }

// Has reports whether the field is there, rightly or wrongly.
func (o *Object) Has(name string) bool { return o.fields[name] != nil || o.spoilt[name] || o.merged }

// Pair is one entry of a YAML mapping.
type Pair struct{ Key, Value *yaml.Node }

// Pairs returns a mapping's entries, aliases resolved, and reports what no mapping here may
// have: merge keys, keys that are no text, duplicates.
func (f *File) Pairs(n *yaml.Node, what string) ([]Pair, bool) {
	if name, rest, ok := f.gluedField(n); ok {
		f.failGlued(n, name, rest)
		return nil, false
	}
	if n.Kind != yaml.MappingNode {
		f.Fail(n, f.words.Examples[what], "%s is a mapping, not %s", what, Describe(n))
		return nil, false
	}
	first := make(map[string]int, len(n.Content)/2)
	out := make([]Pair, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := f.resolve(n.Content[i]), f.resolve(n.Content[i+1])
		if key == nil || value == nil {
			return nil, false
		}
		name, rest, isGlued := f.gluedField(key)
		switch line, twice := first[key.Value]; {
		case isGlued:
			f.failGlued(key, name, rest)
			f.glued[n] = true
		case key.Kind != yaml.ScalarNode || IsNull(key):
			f.Fail(key, "", "a field's name is text, not %s", Describe(key))
		case isMerge(key):
			f.Fail(key, "write the fields out, or use an alias for the whole value",
				"YAML merge keys (<<) are not supported")
		case twice:
			f.Fail(key, fmt.Sprintf("the first one is on line %d", line), "%q is given twice", key.Value)
		default:
			first[key.Value] = key.Line
			out = append(out, Pair{key, value})
		}
	}
	return out, true
}

// Object reads a mapping with known fields; unknown ones are mistakes. It is false for what is no
// mapping.
func (f *File) Object(n *yaml.Node, what string, known ...string) (*Object, bool) {
	return f.ObjectAnd(n, what, func(Pair) bool { return false }, known...)
}

// ObjectAnd is Object for a mapping that has more than fields: what other takes is none.
func (f *File) ObjectAnd(n *yaml.Node, what string, other func(Pair) bool, known ...string) (*Object, bool) {
	pairs, ok := f.Pairs(n, what)
	o := &Object{Node: n, fields: make(map[string]*yaml.Node, len(pairs)), spoilt: map[string]bool{}}
	o.merged = slices.ContainsFunc(n.Content, isMerge) || f.glued[n]
	for _, p := range pairs {
		name := p.Key.Value
		switch {
		case other(p):
		case !slices.Contains(known, name):
			f.unknownField(o, p.Key, known)
		case IsNull(p.Value):
			o.spoilt[name] = true
			f.Fail(p.Key, "write its value behind the colon, or leave the field out", "`%s` has no value", name)
		default:
			o.fields[name] = p.Value
		}
	}
	return o, ok
}

func (f *File) unknownField(o *Object, key *yaml.Node, known []string) {
	o.spoilt[key.Value] = true
	if s, ok := f.words.Synonyms[scalar.Folded(key.Value)]; ok {
		if meant := s.here(known); meant != "" {
			o.spoilt[meant] = true
			hint := s.Write
			if scalar.Closest(key.Value, known) == meant {
				hint = "" // no other word, but a slip
			}
			f.Fail(key, hint, "unknown field %q; did you mean %q?", key.Value, meant)
			return
		}
		inRule := slices.Contains(known, "match") || slices.Contains(known, "api") || slices.Contains(known, "block")
		if (inRule || len(s.Fields) == 0) && scalar.Closest(key.Value, known) == "" && f.words.Places[key.Value] == "" {
			f.Fail(key, s.Write, "unknown field %q", key.Value)
			return
		}
	}
	if meant := scalar.Closest(key.Value, known); meant != "" {
		o.spoilt[meant] = true
		f.Fail(key, "", "unknown field %q; did you mean %q?", key.Value, meant)
		return
	}
	if place := f.words.Places[key.Value]; place != "" {
		f.Fail(key, "", "`%s` belongs to %s", key.Value, place)
		return
	}
	f.Fail(key, "the fields here are "+strings.Join(known, ", "), "unknown field %q", key.Value)
}

// List returns a list's values, aliases resolved; what is no list is a mistake.
func (f *File) List(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		f.Fail(n, "", "%s is a list, not %s", what, Describe(n))
		return nil
	}
	return f.Items(n)
}

// Items returns a list's values, aliases resolved.
func (f *File) Items(n *yaml.Node) []*yaml.Node {
	out := make([]*yaml.Node, 0, len(n.Content))
	for _, item := range n.Content {
		if item = f.resolve(item); item == nil {
			return nil
		}
		out = append(out, item)
	}
	return out
}

// OneOrMore returns the values of a list that is not empty, or the one value that is no list.
func (f *File) OneOrMore(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		return []*yaml.Node{n}
	}
	if len(n.Content) == 0 {
		f.Fail(n, "leave the field out, or put something into the list", "%s is an empty list", what)
	}
	return f.Items(n)
}

// OneOf lists words for a hint, shortened when there are many.
func OneOf(words []string) string {
	const most = 8
	if len(words) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
	}
	return strings.Join(words, ", ")
}

// DidYouMean returns `; did you mean "x"?` for the candidate that a word is probably a slip of, or
// nothing.
func DidYouMean(word string, candidates []string) string { return scalar.DidYouMean(word, candidates) }

// gluedField takes a name apart that was written without a blank behind its colon.
func (f *File) gluedField(n *yaml.Node) (name, rest string, ok bool) {
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return "", "", false
	}
	name, rest, ok = strings.Cut(n.Value, ":")
	return name, rest, ok && rest != "" && !strings.HasPrefix(rest, " ") && slices.Contains(f.words.Fields, name)
}

// failGlued reports such a name where it is.
func (f *File) failGlued(n *yaml.Node, name, rest string) {
	rest, _, _ = strings.Cut(rest, " ")
	e := f.At(n, fmt.Sprintf("write %s: %s", name, scalar.Shortened(rest)), gluedMessage)
	e.Column += len(name)
	f.Report(e)
}
