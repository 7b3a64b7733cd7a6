// Package when compiles the predicates of rules, their `when`, and evaluates them for events.
//
// A predicate is an expression of the expr language that depends on the event only: it asks neither
// the clock nor the machine, and no order of a map. What can never hold is a mistake.
package when

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"

	"github.com/tallygate/tallygate/rules/internal/network"
)

// Bounds on predicates: one runs for each event, and none may hold up a partition.
const (
	maxSource = 4 << 10 // bytes
	maxNodes  = 1000    // of the syntax tree
	maxMemory = 10_000  // what one run may allocate, in expr's units: about one an element
)

// Predicate is a compiled `when`. Many goroutines may use it, each with an Evaluator of its own.
type Predicate struct{ program *vm.Program }

// Source is the predicate as it was written.
func (p *Predicate) Source() string { return p.program.Source().String() }

// Zones finds time zones by their names.
type Zones interface {
	// Load returns a zone; nil when there is none of that name.
	Load(name string) *time.Location
	// Meant guesses which zone was meant by a name that there is not, as text behind a message.
	Meant(name string) string
}

// Names finds what predicates name that is not in them.
type Names interface {
	Zones
	// Networks returns a list of networks; nil when there is none of that name.
	Networks(name string) *network.Set
	// MeantNetworks guesses which list was meant by a name that there is not, as text behind a message.
	MeantNetworks(name string) string
}

// Mistake is a certain or probable mistake in a predicate.
type Mistake struct {
	At            int // the character that it is about, from 0
	Message, Hint string
	Severity      Severity
}

// Severity is a Mistake's effect on the predicate.
type Severity uint8

// What a Mistake means.
const (
	Refused Severity = iota // no predicate; all mistakes are Refused then, and mostly there is one
	Syntax                  // no predicate, since it is no expression
	Never                   // a predicate that works, and compares what is never equal
	Doubt                   // a predicate that works, and is probably not what was meant
)

// variables are the names in predicates.
var variables = types.Map{
	"id": types.String, "uid": types.Any, "ip": types.Any, "api": types.String, "outcome": types.String,
	"cost": types.Float64, "attrs": types.TypeOf(map[string]any{}), "time": types.TypeOf(time.Time{}),
}

// Compile compiles a predicate. It returns nil when mistakes are Refused, or one is Syntax; there are no
// others then.
func Compile(source string, names Names) (*Predicate, []Mistake) {
	return CompileOver(source, names, Declared{}, &Patterns{Accept: true})
}

// CompileOver is Compile where it is declared what events may say, and where regular expressions have a budget.
func CompileOver(source string, names Names, events Declared, patterns *Patterns) (*Predicate, []Mistake) {
	switch {
	case strings.TrimSpace(source) == "":
		return nil, []Mistake{{Message: "when is empty", Hint: "leave it out to match always"}}
	case len(source) > maxSource:
		return nil, []Mistake{{Message: fmt.Sprintf("when has %d bytes, and may have %d", len(source), maxSource)}}
	}
	heavy := patterns.bound(source)
	if len(heavy) > 0 && !patterns.Accept {
		return nil, heavy
	}
	restrict := &restriction{names: names, typed: typeCheck{events: events, mistakes: heavy}}
	_, err := compile(source, variables, restrict)
	restrict.finish()
	switch {
	case restrict.problem != "":
		return nil, []Mistake{{At: restrict.at, Message: "when: " + restrict.problem, Hint: restrict.hint}}
	case len(restrict.refused) > 0:
		return nil, restrict.refused
	case err != nil:
		message, at, hint := mistakeOf(err, source)
		return nil, []Mistake{{At: at, Message: "when: " + message, Hint: hint, Severity: Syntax}}
	}
	// Once more, with a variable for each attribute: expr gets at a map's value by reflection,
	// which allocates, and at a variable without.
	all := maps.Clone(variables)
	all[addressVariable] = types.Any
	for _, name := range restrict.attrs {
		all[attrVariable(name)] = types.Any
	}
	program, err := compile(source, all, &restriction{names: names, inline: true})
	if err != nil {
		return nil, []Mistake{{Message: "when: " + err.Error()}}
	}
	return &Predicate{program: program}, restrict.typed.finish()
}

func compile(source string, names types.Map, visitor ast.Visitor) (*vm.Program, error) {
	return expr.Compile(source, expr.Env(names), expr.AsBool(), expr.MaxNodes(maxNodes), dateFunction, networkFunction, matchesFunction, expr.Patch(visitor))
}

// dateLayouts are the forms that date() reads without a layout of its own.
var dateLayouts = []string{
	time.DateOnly, time.TimeOnly, time.DateTime, time.RFC3339, time.RFC822, time.RFC850, time.RFC1123,
}

// dateFunction is date(text), date(text, layout) and date(timezone, text). expr's own takes an abbreviation
// such as CET for what it means where the program runs, and fails with a timezone that is a constant.
var dateFunction = expr.Function("date", func(args ...any) (any, error) {
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
