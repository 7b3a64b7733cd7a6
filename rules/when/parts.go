package when

import (
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"

	"github.com/tallygate/tallygate/event"
)

// Answer is a predicate's value before all is known that it asks for.
type Answer uint8

// The answers.
const (
	No Answer = iota
	Maybe
	Yes
)

// Parts is a predicate taken apart at its `and`, `or`, `not` and `?:`, so that it can be evaluated for an
// event of which only some is known: attrs.plan == "pro" and outcome == "success" does not hold on any
// other plan, however the action ends. Many goroutines may use it, each with an Evaluator of its own.
type Parts struct {
	whole *Predicate // nil: it can't stand alone, and may be anything
	asks  []string   // the variables that whole asks for
	op    byte       // & | ! ?, or 0 for what is taken no further apart
	of    []*Parts
	text  string // as it is written, but for blanks and brackets
}

// Split takes a predicate apart that Compile accepts.
func Split(source string, names Names) *Parts {
	tree, err := parser.Parse(source)
	if err != nil {
		return &Parts{}
	}
	p := split(tree.Node, names)
	p.text = strings.TrimSpace(source)
	p.stands(source, names)
	return p
}

func split(n ast.Node, names Names) *Parts {
	var op byte
	var of []ast.Node
	switch n := n.(type) {
	case *ast.BinaryNode:
		switch n.Operator {
		case "and", "&&":
			op, of = '&', []ast.Node{n.Left, n.Right}
		case "or", "||":
			op, of = '|', []ast.Node{n.Left, n.Right}
		}
	case *ast.UnaryNode:
		if n.Operator == "not" || n.Operator == "!" {
			op, of = '!', []ast.Node{n.Node}
		}
	case *ast.ConditionalNode:
		op, of = '?', []ast.Node{n.Cond, n.Exp1, n.Exp2}
	}
	p := &Parts{op: op, text: n.String()}
	for _, part := range of {
		p.of = append(p.of, split(part, names))
	}
	if op == 0 {
		p.stands(n.String(), names)
	}
	return p
}

// stands compiles a part that may stand alone.
func (p *Parts) stands(source string, names Names) {
	if p.whole, _ = Compile(source, names); p.whole != nil {
		p.asks = p.whole.Asks()
	}
}

// Uses reports whether a predicate asks for a variable, such as outcome or attrs.plan.
func (p *Predicate) Uses(variable string) bool { return slices.Contains(p.Asks(), variable) }

// Asks returns the variables that a predicate asks for.
func (p *Predicate) Asks() []string {
	names := &variableNames{}
	root := p.program.Node()
	ast.Walk(&root, names)
	return names.found
}

type variableNames struct{ found []string }

// Visit implements ast.Visitor.
func (v *variableNames) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.IdentifierNode)
	if !ok {
		return
	}
	name := n.Value
	if name == addressVariable {
		name = "ip"
	}
	if _, isVariable := variables[name]; (isVariable || strings.HasPrefix(name, attrVariable(""))) && !slices.Contains(v.found, name) {
		v.found = append(v.found, name)
	}
}

// KnowParts makes the Evaluator know a predicate that was taken apart; nil is none.
func (ev *Evaluator) KnowParts(p *Parts) {
	if p == nil {
		return
	}
	ev.Know(p.whole)
	for _, part := range p.of {
		ev.KnowParts(part)
	}
}

// May evaluates a predicate, which the Evaluator knows, for an event of which only some is known: what
// it lacks may be anything; of no event, nil, only the time is known. at is event.NoTime when the event's time is not
// known.
func (ev *Evaluator) May(p *Parts, e *event.Event, at event.Micros) Answer {
	if p.whole != nil && knows(e, at, p.asks) {
		if holds, ok := ev.Holds(p.whole, e, at); ok && holds {
			return Yes
		}
		return No
	}
	// Where something is not known it may be nil, and a part that fails for it makes the whole fail: so
	// it is never certain that the whole holds. That it does not is: what fails does not hold, either.
	return min(ev.combine(p, e, at), Maybe)
}

func (ev *Evaluator) combine(p *Parts, e *event.Event, at event.Micros) Answer {
	switch p.op {
	case '&':
		return min(ev.part(p.of[0], e, at), ev.part(p.of[1], e, at))
	case '|':
		return max(ev.part(p.of[0], e, at), ev.part(p.of[1], e, at))
	case '!':
		return Yes - ev.part(p.of[0], e, at)
	case '?':
		left, right := ev.part(p.of[1], e, at), ev.part(p.of[2], e, at)
		switch cond := ev.part(p.of[0], e, at); {
		case cond == Yes || left == right:
			return left
		case cond == No:
			return right
		}
	}
	return Maybe
}

func (ev *Evaluator) part(p *Parts, e *event.Event, at event.Micros) Answer {
	if p.whole == nil || !knows(e, at, p.asks) {
		return ev.combine(p, e, at)
	}
	switch holds, ok := ev.Holds(p.whole, e, at); {
	case !ok:
		return Maybe
	case holds:
		return Yes
	}
	return No
}

// knows reports whether an event has all of some variables.
func knows(e *event.Event, at event.Micros, variables []string) bool {
	for _, name := range variables {
		known := false
		if e == nil {
			if name != "time" || at == event.NoTime {
				return false
			}
			continue
		}
		switch name {
		case "id":
			known = e.ID != ""
		case "uid":
			known = e.UID != ""
		case "ip":
			known = e.IP.IsValid()
		case "outcome":
			known = e.Outcome != ""
		case "time":
			known = at != event.NoTime
		case "api", "cost":
			known = true
		case "attrs": // there may be more
		default:
			_, known = e.Attr(strings.TrimPrefix(name, attrVariable("")))
		}
		if !known {
			return false
		}
	}
	return true
}
