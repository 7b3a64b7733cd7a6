package when

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// Evaluator evaluates predicates, for one event after the other. Its variables are filled once an event,
// when the first predicate asks, with what the predicates that it knows use.
type Evaluator struct {
	vm     vm.VM
	vars   map[string]any
	names  []string          // the variables that are used, attributes aside
	attrs  map[string]string // the attributes that are used, and their variables
	there  []string          // the attributes' variables that are set
	all    map[string]any    // vars["attrs"], when a predicate uses it as a whole
	addr   netip.Addr        // the event's, for inNetwork
	filled bool
}

// NewEvaluator returns an Evaluator that knows no predicate yet.
func NewEvaluator() *Evaluator {
	return &Evaluator{vm: vm.VM{MemoryBudget: maxMemory}, vars: map[string]any{}, attrs: map[string]string{}}
}

// Know makes the Evaluator know a predicate; nil is none.
func (ev *Evaluator) Know(p *Predicate) {
	if p != nil {
		root := p.program.Node()
		ast.Walk(&root, ev)
	}
}

// Next forgets the event before.
func (ev *Evaluator) Next() { ev.filled = false }

// Holds evaluates a predicate, which the Evaluator knows, for an event. ok is false when that fails:
// then it does not hold.
func (ev *Evaluator) Holds(p *Predicate, e *event.Event, at event.Micros) (holds, ok bool) {
	if !ev.filled {
		if e == nil {
			e = &nobody
		}
		ev.fill(e, at)
	}
	result, err := ev.vm.Run(p.program, ev.vars)
	holds, ok = result.(bool)
	if err != nil {
		return false, false
	}
	return holds, ok
}

// nobody is an event without fields.
var nobody event.Event

// Visit implements ast.Visitor: it notes the variables that a predicate uses.
func (ev *Evaluator) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.IdentifierNode)
	if !ok {
		return
	}
	switch name, isAttr := strings.CutPrefix(n.Value, attrVariable("")); {
	case isAttr:
		ev.attrs[name] = n.Value
	case n.Value == addressVariable:
		ev.vars[n.Value] = &ev.addr // the same for all events, so that none is boxed
	case n.Value == "attrs":
		if ev.all == nil {
			ev.all = map[string]any{}
			ev.vars[n.Value] = ev.all
		}
	case !slices.Contains(ev.names, n.Value):
		ev.names = append(ev.names, n.Value)
	}
}

// fill sets the variables that are used to what the event has.
func (ev *Evaluator) fill(e *event.Event, at event.Micros) {
	ev.filled, ev.addr = true, e.IP
	for _, name := range ev.names {
		ev.vars[name] = valueOf(name, e, at)
	}
	for _, variable := range ev.there {
		delete(ev.vars, variable)
	}
	ev.there = ev.there[:0]
	clear(ev.all)
	for i := range e.Attrs {
		a := &e.Attrs[i]
		variable, used := ev.attrs[a.Name]
		if a.Value.Text == "" || !used && ev.all == nil {
			continue
		}
		value := attrValue(a.Value)
		if used {
			ev.vars[variable] = value
			ev.there = append(ev.there, variable)
		}
		if ev.all != nil {
			ev.all[a.Name] = value
		}
	}
}

// valueOf is a variable's value; nil when the event has none.
func valueOf(name string, e *event.Event, at event.Micros) any {
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

// attrValue is an attribute as predicates see it: whole numbers as int, so that % works on
// them, others as float64.
func attrValue(v event.Value) any {
	switch v.Kind {
	case event.Bool:
		return v.Text == "true"
	case event.Number:
		if unsigned := strings.TrimPrefix(v.Text, "-"); scalar.Digits(unsigned) == len(unsigned) {
			if i, err := strconv.Atoi(v.Text); err == nil {
				return i
			}
		}
		f, _ := strconv.ParseFloat(v.Text, 64) // out of range: ±Inf
		return f
	}
	return v.Text
}
