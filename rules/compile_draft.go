package rules

import (
	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/windows"
)

// Sought is a limit without a number.
type Sought struct {
	Limit  string // its name: Limit.Name
	Burst  bool   // of a bucket it is the burst that is sought, and the rate is known
	Exact  bool   // it is in Draft.Exact, too
	Line   int    // of the word in the source
	Column int
	Rule   int // the line on which its rule begins
}

// MaxLimit is the greatest number that a limit may have.
const MaxLimit = scalar.MaxLimit

// suggestWord stands in a draft in the place of a number.
const suggestWord = "suggest"

// draftForm is the form in which a draft's windows count.
type draftForm uint8

const (
	noDraft draftForm = iota // it is no draft: `suggest` is a mistake
	draftLarge
	draftExact
)

// drafts is a compiler's knowledge of a draft.
type drafts struct {
	form   draftForm
	only   func(rule int) bool // which rules are read, by their lines; nil: all
	rule   int                 // the line of the one that is read
	sought []Sought
}

// skips reports whether a rule is left out.
func (d *drafts) skips(rule *yaml.Node) bool {
	d.rule = rule.Line
	return d.only != nil && !d.only(rule.Line)
}

// draftReader reads numbers that are sought.
type draftReader struct{ c *limitReader }

// limit reads a limit that is sought; false if it is something else.
func (d draftReader) limit(n *yaml.Node) bool {
	if !d.isSought(n) {
		return false
	}
	if kind := d.c.w.get("window"); kind != nil && kind.Value == windows.Bucket.String() {
		d.c.Fail(n, "say the rate, as in limit: 50 with per: 1s, and write burst: suggest",
			"a bucket's rate can't be suggested: how high its level gets depends on the rate")
		return true
	}
	d.seek(n, false)
	d.c.l.Limit = d.standIn()
	return true
}

// burst reads a bucket's burst that is sought; false if it is something else.
func (d draftReader) burst(n *yaml.Node) bool {
	if !d.isSought(n) {
		return false
	}
	d.seek(n, true)
	d.c.l.Burst = d.standIn()
	return true
}

func (d draftReader) isSought(n *yaml.Node) bool {
	return d.c.drafts.form != noDraft && n.Kind == yaml.ScalarNode && n.Value == suggestWord
}

func (d draftReader) seek(n *yaml.Node, burst bool) {
	for _, s := range d.c.drafts.sought {
		if s.Line == n.Line && s.Column == n.Column {
			d.c.Fail(n, "write it in each of them", "two limits share this `suggest`, and may need two numbers")
			return
		}
	}
	if d.c.l.Rule.beforehand() {
		d.c.Fail(n, "try the rule without them, and take its number",
			"past events don't tell what a rule with `scope: instance` or `window: in-flight` counts")
		return
	}
	d.c.l.Sought = true
	d.c.drafts.sought = append(d.c.drafts.sought, Sought{Limit: d.c.l.Name, Burst: burst, Line: n.Line, Column: n.Column, Rule: d.c.drafts.rule})
}

// standIn is a number that no count gets to, or of exact times the largest that they are kept for. It is none that a
// file can say of what is counted in whole numbers: a tier's is told from it.
func (d draftReader) standIn() event.Decimal {
	kind, distinct := d.c.w.get("window"), d.c.l.Rule.Count == CountDistinct
	switch slides := kind == nil || kind.Value == windows.Sliding.String(); {
	case slides && d.c.drafts.form == draftExact:
		return windows.ExactLimit*event.One - 1
	case distinct && (slides || kind.Value == windows.Hopping.String()):
		return windows.ExactDistinct*event.One - 1
	case d.c.l.Rule.Strict != nil:
		return MaxStrict
	}
	return MaxLimit
}
