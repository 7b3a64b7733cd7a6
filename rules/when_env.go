package rules

import (
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/tallygate/tallygate/pipeline/event"
)

// whenEnv holds the variables of predicates. It is filled once an event, when the first
// predicate asks, with what the set's predicates use.
type whenEnv struct {
	vars   map[string]any
	names  []string          // the variables that are used, attributes aside
	attrs  map[string]string // the attributes that are used, and their variables
	there  []string          // the attributes' variables that are set
	all    map[string]any    // vars["attrs"], when a predicate uses it as a whole
	filled bool
}

func newWhenEnv(rules []*Rule) whenEnv {
	env := whenEnv{vars: map[string]any{}, attrs: map[string]string{}}
	for _, r := range rules {
		env.uses(r.match.when)
		for _, l := range r.Limits {
			for i := range l.Tiers {
				env.uses(l.Tiers[i].when)
			}
		}
	}
	return env
}

func (env *whenEnv) uses(p *predicate) {
	if p != nil {
		root := p.program.Node()
		ast.Walk(&root, env)
	}
}

// Visit implements ast.Visitor: it notes the variables that a predicate uses.
func (env *whenEnv) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.IdentifierNode)
	if !ok {
		return
	}
	switch name, isAttr := strings.CutPrefix(n.Value, attrVariable("")); {
	case isAttr:
		env.attrs[name] = n.Value
	case n.Value == "attrs":
		if env.all == nil {
			env.all = map[string]any{}
			env.vars[n.Value] = env.all
		}
	case !slices.Contains(env.names, n.Value):
		env.names = append(env.names, n.Value)
	}
}

// fill sets the variables that are used to what the event has.
func (env *whenEnv) fill(e *event.Event, at event.Micros) {
	env.filled = true
	for _, name := range env.names {
		env.vars[name] = whenValue(name, e, at)
	}
	for _, variable := range env.there {
		delete(env.vars, variable)
	}
	env.there = env.there[:0]
	clear(env.all)
	for i := range e.Attrs {
		a := &e.Attrs[i]
		variable, used := env.attrs[a.Name]
		if a.Value.Text == "" || !used && env.all == nil {
			continue
		}
		value := exprValue(a.Value)
		if used {
			env.vars[variable] = value
			env.there = append(env.there, variable)
		}
		if env.all != nil {
			env.all[a.Name] = value
		}
	}
}

// whenValue is a variable's value; nil when the event has none.
func whenValue(name string, e *event.Event, at event.Micros) any {
	switch name {
	case "id":
		return e.ID
	case "uid":
		if e.UID != "" {
			return e.UID
		}
	case "ip":
		if e.IP.IsValid() {
			return e.IP.String()
		}
	case "api":
		return e.API
	case "outcome":
		return e.Outcome
	case "cost":
		return float64(e.Cost) / float64(event.One)
	case "time":
		return at.Time()
	}
	return nil
}

// exprValue is an attribute as predicates see it: whole numbers as int, so that % works on
// them, others as float64.
func exprValue(v event.Value) any {
	switch v.Kind {
	case event.Bool:
		return v.Text == "true"
	case event.Number:
		if unsigned := strings.TrimPrefix(v.Text, "-"); digits(unsigned) == len(unsigned) {
			if i, err := strconv.Atoi(v.Text); err == nil {
				return i
			}
		}
		f, _ := strconv.ParseFloat(v.Text, 64) // out of range: ±Inf
		return f
	}
	return v.Text
}
