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
