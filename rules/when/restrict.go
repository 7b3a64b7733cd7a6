package when

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/expr-lang/expr/ast"

	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// restriction walks a predicate's syntax tree before it is compiled. It refuses what is not a
// pure function of the event (what asks the clock or the machine, or has a map's order), and loops
// in loops, which could take hours over a few hundred bytes; it puts in what is known beforehand.
type restriction struct {
	names   Names
	inline  bool     // replace attributes by their variables
	attrs   []string // the attributes that are named
	problem string   // the first one
	hint    string
	at      int       // in characters
	refused []Mistake // of networks: all of them

	typed     typeCheck          // what is left when nothing of the above is wrong
	unordered []*ast.BuiltinNode // lists in a map's order, unless what is around them does without it
	methods   []*ast.MemberNode  // methods, unless they are called
}

// finish refuses what nothing around it has made good.
func (v *restriction) finish() {
	for _, n := range v.unordered {
		v.refuse(n, n.Name+"() is not supported: its order is another one at each event",
			`write "plan" in attrs, len(attrs) or sort(keys(attrs))`)
	}
	for _, n := range v.methods {
		v.refuse(n, "a method that is not called is not supported", "call it, as in time.Hour()")
	}
}

// isMethod reports whether a member is a method, as far as is known before it runs.
func isMethod(n *ast.MemberNode) bool {
	return n.Type() != nil && n.Type().Kind() == reflect.Func
}

// ordered takes a list in a map's order off those that are refused.
func (v *restriction) ordered(n ast.Node) {
	v.unordered = slices.DeleteFunc(v.unordered, func(u *ast.BuiltinNode) bool { return ast.Node(u) == n })
}

// Visit implements ast.Visitor; children come before their parents.
func (v *restriction) Visit(node *ast.Node) {
	defer func() { v.typed.note(*node) }() // as it was replaced
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		if n.Value == "$env" {
			v.refuse(n, "$env is not supported", "name the variable")
		}
	case *ast.MemberNode:
		v.member(node, n)
	case *ast.BinaryNode:
		v.binary(n)
		v.pattern(node, n)
	case *ast.BuiltinNode:
		v.builtin(node, n)
	case *ast.CallNode:
		v.call(n)
	case *ast.PredicateNode:
		inner := &innerLoop{}
		ast.Walk(&n.Node, inner)
		if inner.found {
			v.refuse(n, "a loop inside another loop", "")
		}
	}
}

// member notes attrs.NAME.
func (v *restriction) member(node *ast.Node, n *ast.MemberNode) {
	if isMethod(n) {
		v.methods = append(v.methods, n)
	}
	of, isName := n.Node.(*ast.IdentifierNode)
	property, isConstant := n.Property.(*ast.StringNode)
	if !isName || of.Value != "attrs" || !isConstant {
		return
	}
	v.attrs = append(v.attrs, property.Value)
	if v.inline {
		ast.Patch(node, &ast.IdentifierNode{Value: attrVariable(property.Value)})
	}
}

func (v *restriction) refuse(n ast.Node, problem, hint string) {
	if v.problem == "" {
		v.problem, v.hint, v.at = problem, hint, n.Location().From
	}
}

// binary refuses ranges, and makes a list of constants behind `in` a constant. expr would turn
// the list into a map, and a look-up of nil, or of a number among texts, would then fail.
func (v *restriction) binary(n *ast.BinaryNode) {
	switch n.Operator {
	case "..":
		v.refuse(n, "ranges are not supported", "compare with >= and <=")
	case "in":
		v.ordered(n.Right) // a look-up is the same in any order
		list, ok := n.Right.(*ast.ArrayNode)
		if !ok {
			return
		}
		values := make([]any, 0, len(list.Nodes))
		for _, item := range list.Nodes {
			switch item := item.(type) {
			case *ast.StringNode:
				values = append(values, item.Value)
			case *ast.IntegerNode:
				values = append(values, item.Value)
			case *ast.FloatNode:
				values = append(values, item.Value)
			case *ast.BoolNode:
				values = append(values, item.Value)
			default:
				return
			}
		}
		if v.typed.lists == nil {
			v.typed.lists = map[*ast.BinaryNode]*ast.ArrayNode{}
		}
		v.typed.lists[n] = list
		ast.Patch(&n.Right, &ast.ConstantNode{Value: values})
	}
}

func (v *restriction) builtin(node *ast.Node, n *ast.BuiltinNode) {
	if len(n.Arguments) == 0 && n.Name != "now" && n.Name != "timezone" {
		return // a mistake that expr reports
	}
	switch n.Name {
	case "now":
		v.refuse(n, "now() is not supported", "`time` is the event's time")
	case "keys", "values", "toPairs":
		v.unordered = append(v.unordered, n)
	case "len":
		v.ordered(n.Arguments[0])
	case "sort":
		// Keys that are text have one order; equal numbers of two types, or the members of a sum, don't.
		if of, ok := n.Arguments[0].(*ast.BuiltinNode); ok && of.Name == "keys" && len(of.Arguments) > 0 && isTextMap(of.Arguments[0]) {
			v.ordered(of)
		}
	case "string":
		// Text of a map with keys of several types has them in the order of the types' addresses.
		if isMap(n.Arguments[0]) && !isTextMap(n.Arguments[0]) {
			v.refuse(n, "string() of a map is not supported", "compare its values")
		}
	case "timezone":
		var name *ast.StringNode
		if len(n.Arguments) == 1 {
			name, _ = n.Arguments[0].(*ast.StringNode)
		}
		if name == nil {
			v.refuse(n, "timezone() takes a name in quotes", "")
			return
		}
		zone := v.names.Load(name.Value)
		if zone == nil {
			v.refuse(name, fmt.Sprintf("there is no timezone %q%s", scalar.Shortened(name.Value), v.names.Meant(name.Value)), "")
			return
		}
		if doubt, hint := scalar.ZoneDoubt(name.Value); doubt != "" {
			v.typed.warn(name, hint, doubt)
		}
		ast.Patch(node, &ast.ConstantNode{Value: zone})
	}
}

func isMap(n ast.Node) bool { return n.Type() != nil && n.Type().Kind() == reflect.Map }

func isTextMap(n ast.Node) bool { return isMap(n) && n.Type().Key().Kind() == reflect.String }

// call refuses methods that are not known by name, and the one that asks the machine.
func (v *restriction) call(n *ast.CallNode) {
	if isVariable(n.Callee, inNetwork) {
		v.network(n)
	}
	if callee, ok := n.Callee.(*ast.IdentifierNode); ok && callee.Value == "date" && len(n.Arguments) > 2 {
		v.refuse(n, "date() with a third argument is not supported",
			`write date(timezone("Asia/Shanghai"), "2026-01-02")`)
	}
	member, ok := n.Callee.(*ast.MemberNode)
	if !ok {
		return
	}
	v.methods = slices.DeleteFunc(v.methods, func(m *ast.MemberNode) bool { return m == member })
	switch name, ok := member.Property.(*ast.StringNode); {
	case !ok:
		v.refuse(n, "a method is called by its name", "")
	case name.Value == "Local":
		v.refuse(n, "time.Local() is not supported: it depends on the machine",
			`write time.In(timezone("Asia/Shanghai"))`)
	}
}

// innerLoop finds predicates, such as {# > 1}.
type innerLoop struct{ found bool }

// Visit implements ast.Visitor.
func (l *innerLoop) Visit(node *ast.Node) {
	if _, ok := (*node).(*ast.PredicateNode); ok {
		l.found = true
	}
}
