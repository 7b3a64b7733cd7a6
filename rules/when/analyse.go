package when

import (
	"slices"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"

	"github.com/tallygate/tallygate/rules/internal/logic"
)

// Analyse finds when a predicate that compiles is true, false, and neither, and what in it never holds.
func Analyse(source string, events Declared) (logic.Formula, []Mistake) {
	tree, err := parser.Parse(source)
	if err != nil {
		return logic.Unknown(), nil
	}
	r := &formulaReader{source: source, attrs: events.Attrs, solver: &logic.Solver{}}
	f := r.of(tree.Node)
	if r.folded {
		return logic.Unknown(), slices.DeleteFunc(r.mistakes, func(m Mistake) bool { return m.Severity != Never })
	}
	if f.True.Never() && !slices.ContainsFunc(r.mistakes, func(m Mistake) bool { return m.Severity == Never }) {
		r.never(tree.Node)
	}
	return f, r.mistakes
}

// formulaReader turns a predicate's tree into a formula over terms: attributes, other variables, and what is
// computed of them. What it does not know is a term of its own, which may be anything.
type formulaReader struct {
	source   string
	attrs    Attrs
	solver   *logic.Solver
	lets     map[string]ast.Node
	mistakes []Mistake

	folded        bool // a part is fixed: what is around it may be fixed, too
	contradiction int  // the number of the last mistake that tells of an `and`; 0: there is none
}

func (r *formulaReader) of(n ast.Node) logic.Formula {
	switch n := n.(type) {
	case *ast.BoolNode:
		return logic.Constant(n.Value)
	case *ast.ChainNode:
		return r.of(n.Node)
	case *ast.UnaryNode:
		if n.Operator == "not" || n.Operator == "!" {
			return r.solver.Not(r.of(n.Node))
		}
	case *ast.ConditionalNode:
		if isFixed(n.Cond) {
			r.folded = true
		}
		return r.solver.If(r.of(n.Cond), r.of(n.Exp1), r.of(n.Exp2))
	case *ast.VariableDeclaratorNode:
		if r.lets == nil {
			r.lets = map[string]ast.Node{}
		}
		r.lets[n.Name] = n.Value
		f := r.of(n.Expr)
		f.Fails = logic.Always() // its value may fail, whether it is asked for or not
		return f
	case *ast.BinaryNode:
		switch n.Operator {
		case "and", "&&", "or", "||":
			if isFixed(n.Left) || isFixed(n.Right) {
				r.folded = true
			}
		}
		switch n.Operator {
		case "and", "&&":
			return r.both(n)
		case "or", "||":
			return r.either(n)
		case "==", "!=", "<", "<=", ">", ">=", "in", "startsWith", "endsWith", "contains", "matches":
			return r.compare(n)
		}
	}
	return r.condition(n)
}

// isFixed reports whether a part is the same at each event. expr then leaves out what stands beside it, also
// where that would fail.
func isFixed(n ast.Node) bool {
	names := &identifierFinder{}
	ast.Walk(&n, names)
	return !names.found
}

type identifierFinder struct{ found bool }

// Visit implements ast.Visitor.
func (v *identifierFinder) Visit(node *ast.Node) {
	if _, ok := (*node).(*ast.IdentifierNode); ok {
		v.found = true
	}
}

// both tells of an `and` of which both sides may hold, and never together.
func (r *formulaReader) both(n *ast.BinaryNode) logic.Formula {
	a, b := r.of(n.Left), r.of(n.Right)
	f := r.solver.Both(a, b)
	if f.True.Never() && !a.True.Never() && !b.True.Never() {
		c := r.solver.Conflict
		r.tell(n, "it never holds: nothing is both what "+written(n.Left)+" and what "+written(n.Right)+" ask of "+shortTerm(c.Term), conflictHint(c))
		r.contradiction = len(r.mistakes)
	}
	return f
}

// either tells of an `or` that always holds, as one of two != does.
func (r *formulaReader) either(n *ast.BinaryNode) logic.Formula {
	a, b := r.of(n.Left), r.of(n.Right)
	f := r.solver.Either(a, b)
	if f.False.Never() && !a.False.Never() && !b.False.Never() {
		r.tell(n, written(n)+" holds for every event", "none of several is written with `and`, or as in not (outcome in [\"a\", \"b\"])")
	}
	return f
}

// never tells that the whole never holds: by the part that does not, if one is known.
func (r *formulaReader) never(root ast.Node) {
	if r.contradiction == 0 {
		r.tell(root, "it never holds", "")
		r.contradiction = len(r.mistakes)
	}
	r.mistakes[r.contradiction-1].Severity = Never
}

func (r *formulaReader) tell(n ast.Node, message, hint string) {
	r.mistakes = append(r.mistakes, Mistake{At: n.Location().From, Message: "when: " + message, Hint: hint, Severity: Doubt})
}

// conflictHint guesses what was meant by two conditions on one term that exclude each other.
func conflictHint(c logic.Conflict) string {
	name := shortTerm(c.Term)
	switch low, high := max(c.A.Low, c.B.Low), min(c.A.High, c.B.High); {
	case c.A.Texts != nil && c.B.Texts != nil || c.A.Numbers != nil && c.B.Numbers != nil:
		return "one of several is written with `in`, as in " + name + " in [\"a\", \"b\"]"
	case low > high && isRound(c.Term):
		return "a span that goes over the end is written with `or`, as in time.Hour() >= 22 or time.Hour() < 6"
	case low > high:
		return "between two numbers is written as in " + name + " > 3 and " + name + " < 5"
	}
	return ""
}

// condition is a term that is true or false by itself. Without a value it fails inside a predicate, and as the whole of
// one, or its last part, it counts as false.
func (r *formulaReader) condition(n ast.Node) logic.Formula {
	t := r.term(n)
	return logic.Formula{
		True:  logic.Of(t.name, t.base.And(logic.OfKinds(logic.True))),
		False: logic.Of(t.name, t.base.And(logic.OfKinds(logic.False|logic.Nil))),
		Fails: logic.Of(t.name, t.base.And(logic.OfKinds(logic.Anything&^logic.Bool))),
	}
}

// flipped are comparisons the other way round.
var flipped = map[string]string{"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

// compare is a comparison of a term with what is known beforehand; any other is a condition of its own.
func (r *formulaReader) compare(n *ast.BinaryNode) logic.Formula {
	left, right, op := n.Left, n.Right, n.Operator
	if _, ok := constantOf(left); ok && flipped[op] != "" {
		left, right, op = right, left, flipped[op]
	}
	if _, ok := constantOf(left); ok {
		return r.membership(n)
	}
	if op == "in" {
		return r.oneOf(n)
	}
	c, ok := constantOf(right)
	if !ok {
		return r.condition(n)
	}
	t := r.term(left)
	want, contrary, ok := c.compared(op)
	if !ok {
		return r.condition(n)
	}
	f := t.formula(want, contrary)
	r.impossible(n, right, t, c, op, f)
	return f
}

// membership is "plan" in attrs: the attribute is there.
func (r *formulaReader) membership(n *ast.BinaryNode) logic.Formula {
	name, ok := n.Left.(*ast.StringNode)
	if !ok || n.Operator != "in" || !isVariable(n.Right, "attrs") {
		return r.condition(n)
	}
	t := r.attribute(name.Value)
	return t.formula(logic.OfKinds(logic.Anything&^(logic.Nil|logic.Fails)), logic.OfKinds(logic.Nil))
}

// oneOf is a term in a list of constants.
func (r *formulaReader) oneOf(n *ast.BinaryNode) logic.Formula {
	list, ok := n.Right.(*ast.ArrayNode)
	if !ok || len(list.Nodes) == 0 {
		return r.condition(n)
	}
	t := r.term(n.Left)
	in, out := logic.OfKinds(0), logic.OfKinds(logic.Anything&^logic.Fails)
	in.Texts, in.Numbers = []string{}, []float64{}
	for _, item := range list.Nodes {
		c, ok := constantOf(item)
		if !ok || c.unsafe {
			return r.condition(n)
		}
		is, not, _ := c.compared("==")
		r.impossible(n, item, t, c, "==", t.formula(is, not))
		in.Kinds |= c.kind
		switch c.kind {
		case logic.Text:
			in.Texts, out.NotTexts = append(in.Texts, c.text), append(out.NotTexts, c.text)
		case logic.Number:
			in.Numbers, out.NotNumbers = append(in.Numbers, c.number), append(out.NotNumbers, c.number)
		default:
			out.Kinds &^= c.kind
		}
	}
	return t.formula(in, out)
}
