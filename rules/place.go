package rules

import (
	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/logic"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/rules/when"
	"github.com/tallygate/tallygate/verdict"
)

// field is one field of rule files: a line in the table below. What may be written, the messages about
// what may not, the JSON Schema and the tables in docs/rules.md all come from there.
type field[R any] struct {
	fieldDoc

	// read reads the field's value; nil where the reader of the whole mapping does.
	read func(reader R, n *yaml.Node)
}

// fieldDoc describes a field, without a reader.
type fieldDoc struct {
	name     string
	schema   string // what its value is: a definition of the schema, or one of its own as JSON
	doc      string // one sentence, in Markdown
	required bool
}

// place is a mapping in a rule file. Its fields are read in their order.
type place[R any] struct {
	placeDoc
	fields []field[R]
}

// placeDoc describes a place, without a reader.
type placeDoc struct {
	what    string // what messages call it
	called  string // where messages say that a field belongs; "" where another place says it
	example string // how to write one
	missing string // a hint for one without a field that is required
	doc     string // one sentence
	schema  string // members of its schema besides its fields, as JSON
}

// docs are the fields that may stand in a place.
func (p *place[R]) docs() []fieldDoc { return docsOf(p.fields) }

func docsOf[R any](fields []field[R]) []fieldDoc {
	out := make([]fieldDoc, len(fields))
	for i := range fields {
		out[i] = fields[i].fieldDoc
	}
	return out
}

// unread are fields that another reader reads.
func unread[R any](docs []fieldDoc) []field[R] {
	out := make([]field[R], len(docs))
	for i := range docs {
		out[i].fieldDoc = docs[i]
	}
	return out
}

// object returns the mapping that stands in a place, and reports what is missing in it, or unknown.
func (p *place[R]) object(f *document.File, n *yaml.Node) (*document.Object, bool) {
	return p.objectAnd(f, n, func(document.Pair) bool { return false })
}

// objectAnd is object for a place with more than fields: see document.File.ObjectAnd.
func (p *place[R]) objectAnd(f *document.File, n *yaml.Node, other func(document.Pair) bool) (*document.Object, bool) {
	names := make([]string, len(p.fields))
	for i := range p.fields {
		names[i] = p.fields[i].name
	}
	o, ok := f.ObjectAnd(n, p.what, other, names...)
	for i := range p.fields {
		if d := &p.fields[i]; ok && d.required && !o.Has(d.name) {
			f.Fail(o.Node, p.missing, "%s needs `%s`", p.what, d.name)
		}
	}
	return o, ok
}

// inside reads the mapping that stands in a place.
func (p *place[R]) inside(reader R, f *document.File, n *yaml.Node) (*document.Object, bool) {
	o, ok := p.object(f, n)
	if ok {
		p.read(reader, o)
	}
	return o, ok
}

// read reads the fields that are there.
func (p *place[R]) read(reader R, o *document.Object) { readFields(p.fields, reader, o) }

func readFields[R any](fields []field[R], reader R, o *document.Object) {
	for i := range fields {
		if n := o.Get(fields[i].name); n != nil && fields[i].read != nil {
			fields[i].read(reader, n)
		}
	}
}

// compiler carries one file through Compile.
type compiler struct {
	*document.File
	vocabularyReader
	source   []byte
	read     func(name string) ([]byte, error)
	set      *Set
	defaults defaults

	names  map[string]int // names of rules, and the lines they are on
	exempt int            // exemptions read so far
	zones  scalar.Zones
	lists  *networkLists
	drafts drafts

	patterns when.Patterns                // the budget of all predicates
	formulas map[*yaml.Node]logic.Formula // of predicates that may hold
	holdAt   map[*Rule]*yaml.Node         // where holds are written
	limitAt  map[*Limit]*yaml.Node        // where limits are written
	tiersAt  map[*Limit][]*yaml.Node      // where the predicates of their tiers are
}

// defaults are the values of spec.defaults, for rules that don't say otherwise.
type defaults struct {
	key    []string
	mode   verdict.Mode
	then   *yaml.Node
	window windowFields
}

// ruleReader reads one rule.
type ruleReader struct {
	*compiler
	r *Rule
	o *document.Object // the rule as it is written
}

// limitReader reads one limit and its window.
type limitReader struct {
	*compiler
	l   *Limit
	o   *document.Object // the limit as it is written, or the rule
	own windowFields     // where its window is written
	w   windowFields     // the same, and what surrounds it
}

// windowFields are mappings that have fields of a window: what the first one leaves out the next one may have.
type windowFields []*document.Object

func (w windowFields) get(name string) *yaml.Node {
	for _, o := range w {
		if n := o.Get(name); n != nil {
			return n
		}
	}
	return nil
}

// What a rule file says at its top.
const (
	apiVersion = "tallygate.dev/v1"
	kind       = "RuleSet"
)
