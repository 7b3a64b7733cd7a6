package rules

import (
	"fmt"
	"time"

	"github.com/expr-lang/expr/ast"
)

// restriction walks a predicate's syntax tree before it is compiled. It refuses what is not a
// pure function of the event, and loops in loops, which could take hours over a few hundred
// bytes; it puts in what is known beforehand.
type restriction struct {
	zone    func(name string) *time.Location
	meant   func(zone string) string // a guess at one that there is not
	inline  bool                     // replace attributes by their variables
	attrs   []string                 // the attributes that are named
	problem string                   // the first one
	hint    string
	at      int // in characters
}

// Visit implements ast.Visitor; children come before their parents.
func (v *restriction) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		if n.Value == "$env" {
			v.refuse(n, "$env is not supported", "name the variable")
		}
	case *ast.MemberNode:
		v.member(node, n)
	case *ast.BinaryNode:
		v.binary(n)
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
		ast.Patch(&n.Right, &ast.ConstantNode{Value: values})
	}
}

func (v *restriction) builtin(node *ast.Node, n *ast.BuiltinNode) {
	switch n.Name {
	case "now":
		v.refuse(n, "now() is not supported", "`time` is the event's time")
	case "date":
		if len(n.Arguments) > 2 {
			v.refuse(n, "date() with a third argument is not supported",
				`write date(timezone("Asia/Shanghai"), "2026-01-02")`)
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
		zone := v.zone(name.Value)
		if zone == nil {
			v.refuse(name, fmt.Sprintf("there is no timezone %q%s", shortened(name.Value), v.meant(name.Value)), "")
			return
		}
		ast.Patch(node, &ast.ConstantNode{Value: zone})
	}
}

// call refuses methods that are not known by name, and the one that asks the machine.
func (v *restriction) call(n *ast.CallNode) {
	member, ok := n.Callee.(*ast.MemberNode)
	if !ok {
		return
	}
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
