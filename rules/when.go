package rules

import (
	"errors"
	"maps"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"
	"go.yaml.in/yaml/v4"
)

// Bounds on predicates: one runs for each event, and none may hold up a partition.
const (
	maxWhen    = 4 << 10 // bytes of source
	whenNodes  = 1000    // of the syntax tree
	whenMemory = 10_000  // what one run may allocate, in expr's units: about one an element
)

// predicate is a compiled `when`.
type predicate struct{ program *vm.Program }

// whenTypes are the variables of predicates. uid, ip and attributes may be nil.
var whenTypes = types.Map{
	"id": types.String, "uid": types.Any, "ip": types.Any, "api": types.String, "outcome": types.String,
	"cost": types.Float64, "attrs": types.TypeOf(map[string]any{}), "time": types.TypeOf(time.Time{}),
}

// when compiles a predicate; nil when there is a mistake in it.
func (c *compiler) when(n *yaml.Node) *predicate {
	source, ok := c.text(n, "when")
	switch {
	case !ok:
		return nil
	case strings.TrimSpace(source) == "":
		c.fail(n, "leave it out to match always", "when is empty")
		return nil
	case len(source) > maxWhen:
		c.fail(n, "", "when has %d bytes, and may have %d", len(source), maxWhen)
		return nil
	}
	restrict := &restriction{zone: c.loadZone, meant: c.zoneMeant}
	_, err := compileWhen(source, whenTypes, restrict)
	restrict.finish()
	switch {
	case restrict.problem != "":
		c.failInside(n, restrict.at, restrict.hint, "when: "+restrict.problem)
		return nil
	case err != nil:
		message, at, hint := whenMistake(err, source)
		if n.Style == 0 && strings.Contains(c.src.line(n.Line), " #") {
			hint = "in YAML, a # behind a blank begins a comment: put the predicate into quotes"
		}
		c.failInside(n, at, hint, "when: "+message)
		return nil
	case !c.wellTyped(n, restrict.typed.finish()):
		return nil
	}
	// Once more, with a variable for each attribute: expr gets at a map's value by reflection,
	// which allocates, and at a variable without.
	variables := maps.Clone(whenTypes)
	for _, name := range restrict.attrs {
		variables[attrVariable(name)] = types.Any
	}
	program, err := compileWhen(source, variables, &restriction{zone: c.loadZone, meant: c.zoneMeant, inline: true})
	if err != nil {
		c.failInside(n, 0, "", "when: "+err.Error())
		return nil
	}
	return &predicate{program: program}
}

func compileWhen(source string, variables types.Map, visitor ast.Visitor) (*vm.Program, error) {
	return expr.Compile(source, expr.Env(variables), expr.AsBool(), expr.MaxNodes(whenNodes), whenDate, expr.Patch(visitor))
}

// dateLayouts are what date() reads without a layout of its own.
var dateLayouts = []string{
	time.DateOnly, time.TimeOnly, time.DateTime, time.RFC3339, time.RFC822, time.RFC850, time.RFC1123,
}

// whenDate is date(text), date(text, layout) and date(timezone, text). expr's own takes an abbreviation
// such as CET for what it means where the program runs, and fails with a timezone that is a constant.
var whenDate = expr.Function("date", func(args ...any) (any, error) {
	zone, given := args[0].(*time.Location)
	if given {
		args = args[1:]
	} else {
		zone = time.UTC
	}
	text, ok := args[0].(string)
	if !ok {
		return nil, errors.New("date: it takes a text")
	}
	layouts := dateLayouts
	if len(args) > 1 {
		layouts = []string{args[1].(string)}
	}
	for _, layout := range layouts {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return at, nil
		}
	}
	return nil, errors.New("date: there is none in the text")
}, new(func(string) time.Time), new(func(string, string) time.Time), new(func(*time.Location, string) time.Time), new(func(string, string, string) time.Time))

// attrVariable is the name of the variable that attrs.NAME is compiled to. No predicate can
// spell it.
func attrVariable(name string) string { return "attrs." + name }

// wellTyped reports what can never hold, and false when there is any.
func (c *compiler) wellTyped(n *yaml.Node, mistakes []typeMistake) bool {
	ok := true
	for _, m := range mistakes {
		e := c.errorInside(n, m.at, m.hint, "when: "+m.message)
		if m.warning {
			c.warned = append(c.warned, e)
			continue
		}
		ok = c.refuse(e) && ok
	}
	return ok
}

// failInside reports a mistake at a character of a scalar's text.
func (c *compiler) failInside(n *yaml.Node, at int, hint, message string) {
	c.errs = append(c.errs, c.errorInside(n, at, hint, message))
}

func (c *compiler) errorInside(n *yaml.Node, at int, hint, message string) *Error {
	e := c.errorAt(n, hint, message)
	if line, column, ok := c.src.inside(n, at); ok {
		e.Line, e.Column, e.SourceLine = line, column, c.src.line(line)
	}
	return e
}

// inside finds the place in the file of the at-th character of a scalar's text. YAML folds and
// strips only blanks, so the other characters are walked side by side; where they differ, as
// after an escape, there is no telling.
func (s *source) inside(n *yaml.Node, at int) (line, column int, ok bool) {
	p := place{s: s, line: n.Line, column: n.Column}
	switch n.Style &^ yaml.TaggedStyle {
	case yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle:
		p.column++
	case yaml.LiteralStyle, yaml.FoldedStyle:
		p.line, p.column = p.line+1, 1
	}
	if n.Style&yaml.TaggedStyle != 0 || n.Anchor != "" {
		return 0, 0, false
	}
	text := []rune(n.Value)
	end := len(strings.TrimRightFunc(n.Value, unicode.IsSpace))
	at = min(at, utf8.RuneCountInString(n.Value[:end]))
	for i := 0; i < at; i++ {
		if unicode.IsSpace(text[i]) {
			continue
		}
		if r, found := p.next(); !found || r != text[i] {
			return 0, 0, false
		}
		p.column++
	}
	if at < len(text) && !unicode.IsSpace(text[at]) {
		if r, found := p.next(); !found || r != text[at] {
			return 0, 0, false
		}
	}
	return p.line, p.column, true
}

// place is a character in a file.
type place struct {
	s            *source
	line, column int
}

// next moves on to a character that is no blank, and returns it.
func (p *place) next() (rune, bool) {
	for ; p.line <= len(p.s.lines); p.line, p.column = p.line+1, 1 {
		text := []rune(p.s.line(p.line))
		for ; p.column <= len(text); p.column++ {
			if r := text[p.column-1]; !unicode.IsSpace(r) {
				return r, true
			}
		}
	}
	return 0, false
}
