package when

import (
	"slices"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
)

// ClockInUTC finds the first hour, day or the like of the event's time that a predicate takes in UTC without
// saying so: the character where it stands, and how it is written.
func ClockInUTC(source string) (at int, call string, found bool) {
	tree, err := parser.Parse(source)
	if err != nil {
		return 0, "", false
	}
	finder := &clockFinder{}
	ast.Walk(&tree.Node, finder)
	if finder.first == nil {
		return 0, "", false
	}
	return finder.at, written(finder.first), true
}

// zoned are the methods of a time whose results depend on its zone.
var zoned = []string{"Hour", "Day", "Weekday", "YearDay", "Month", "Year", "Date", "ISOWeek", "Format"}

type clockFinder struct {
	first ast.Node
	at    int
}

// Visit implements ast.Visitor.
func (v *clockFinder) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.CallNode)
	if !ok {
		return
	}
	member, ok := n.Callee.(*ast.MemberNode)
	if !ok || !isVariable(member.Node, "time") {
		return
	}
	name, ok := member.Property.(*ast.StringNode)
	if at := member.Node.Location().From; ok && slices.Contains(zoned, name.Value) && (v.first == nil || at < v.at) {
		v.first, v.at = n, at
	}
}

// Fine reports whether what a predicate says may change with each minute of the event's time: it asks for more than
// the civil hour, and does more with the time than compare it.
func Fine(source string) bool {
	tree, err := parser.Parse(source)
	if err != nil {
		return true
	}
	finder := &fineFinder{}
	ast.Walk(&tree.Node, finder)
	return finder.fine || finder.times > 0
}

// hourly are the methods of a time that go on with what is the same for a civil hour, and those that compare times.
var hourly = []string{"Hour", "Day", "Weekday", "YearDay", "Month", "Year", "In", "UTC", "Before", "After", "Equal", "Compare"}

type fineFinder struct {
	times int // where the event's time stands, and nothing says for what
	fine  bool
}

// Visit implements ast.Visitor; children come before their parents.
func (v *fineFinder) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		v.coarse(n, +1)
	case *ast.BinaryNode:
		if slices.Contains([]string{"<", "<=", ">", ">=", "==", "!="}, n.Operator) {
			v.coarse(n.Left, -1)
			v.coarse(n.Right, -1)
		}
	case *ast.BuiltinNode:
		v.fine = v.fine || n.Name == "string" && !isName(n.Arguments[0])
	case *ast.CallNode:
		member, ok := n.Callee.(*ast.MemberNode)
		if !ok {
			for _, arg := range n.Arguments { // such as of date()
				v.fine = v.fine || isVariable(arg, "time")
			}
			return
		}
		name, ok := member.Property.(*ast.StringNode)
		v.fine = v.fine || !ok || !slices.Contains(hourly, name.Value) && !(name.Value == "String" && isName(member.Node))
		v.coarse(member.Node, -1)
	}
}

func (v *fineFinder) coarse(n ast.Node, by int) {
	if isVariable(n, "time") {
		v.times += by
	}
}

// isName reports whether a node is a month or a day of the week.
func isName(n ast.Node) bool {
	call, ok := n.(*ast.CallNode)
	if !ok {
		return false
	}
	name, _ := method(call)
	return name == "Weekday" || name == "Month"
}
