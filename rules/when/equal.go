package when

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// equality refuses what is never equal. With `!=` it would hold for every event, which is as wrong;
// except that nothing is lost by making sure that something is there.
func (v *typeCheck) equality(n *ast.BinaryNode, left, right ast.Node) {
	l, r := v.of(left), v.of(right)
	if l&r == 0 {
		switch {
		case n.Operator == "!=" && (l == isNil || r == isNil):
		case r == isNil:
			v.fail(n, absence(left), written(left)+" is "+l.String()+", and never nil")
		case l == isNil:
			v.fail(n, absence(right), written(right)+" is "+r.String()+", and never nil")
		default:
			at := right
			if isConstant(left) {
				at = left
			}
			v.fail(at, howToCompare(left, right, l, r), differ(left, right, l, r))
		}
		return
	}
	v.constant(n, left, right)
	v.constant(n, right, left)
}

func differ(left, right ast.Node, l, r kinds) string {
	return written(left) + " is " + l.String() + ", and " + written(right) + " " + r.String() + ": they are never equal"
}

// absence suggests how to ask whether something is there that is never nil.
func absence(n ast.Node) string {
	switch name := written(n); name {
	case "id", "outcome":
		return `one that is absent is empty: ` + name + ` == ""`
	case "attrs":
		return "without attributes len(attrs) == 0"
	case "cost":
		return "an event without a cost has 1"
	}
	return "leave it out"
}

func isConstant(n ast.Node) bool {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.StringNode, *ast.BoolNode:
		return true
	}
	return false
}

// howToCompare suggests a comparison of two kinds.
func howToCompare(left, right ast.Node, l, r kinds) string {
	if isConstant(left) && !isConstant(right) {
		left, right, l, r = right, left, r, l
	}
	switch {
	case l == isCivil && r == isNumber:
		return civilHint(left)
	case l.only(isText|isNil) && isConstant(right) && r&(isNumber|isBool) != 0:
		return "text stands in quotes: " + strconv.Quote(written(right))
	case l.only(isNumber|isNil) && isConstant(right) && r == isText:
		return "a number stands without quotes"
	case l.only(isBool|isNil) && isConstant(right) && r == isText:
		return "true and false stand without quotes"
	case l.only(isText|isNil) && r == isNumber:
		return "write string(" + written(right) + ")"
	case l == isMoment || r == isMoment:
		return "a time of text is date(…), as in date(attrs.born); one in seconds compares with time.Unix()"
	case r == isCollection:
		return "one of a list is written with `in`"
	}
	return ""
}

// civilHint returns a day of the week, or a month, as a number.
func civilHint(n ast.Node) string {
	first := "Sunday is 0"
	if strings.Contains(n.String(), "Month") {
		first = "January is 1"
	}
	return "write int(" + written(n) + "), as a number: " + first
}

// membership looks at `x in list`.
func (v *typeCheck) membership(n *ast.BinaryNode) {
	if name, ok := n.Left.(*ast.StringNode); ok && isVariable(n.Right, "attrs") {
		v.known(name, name.Value)
	}
	l, r := v.of(n.Left), v.of(n.Right)
	if list := v.lists[n]; list != nil {
		for _, item := range list.Nodes {
			switch k := v.of(item); {
			case l&k != 0:
				v.constant(n, n.Left, item)
			case l == isCivil && k == isNumber:
				v.fail(n.Left, civilHint(n.Left)+", as in int("+written(n.Left)+") in "+scalar.Shortened(list.String()),
					written(n.Left)+" is a day or a month, and no number: it is in no list of numbers")
				return
			default:
				v.fail(item, howToCompare(n.Left, item, l, k), differ(n.Left, item, l, k))
			}
		}
		return
	}
	if list, ok := n.Right.(*ast.ArrayNode); ok {
		for _, item := range list.Nodes { // not all of them are constants
			if k := v.of(item); l&k == 0 {
				v.fail(item, howToCompare(n.Left, item, l, k), differ(n.Left, item, l, k))
			}
		}
		return
	}
	if r&(isCollection|isOther) != 0 {
		return
	}
	text, isString := n.Right.(*ast.StringNode)
	switch {
	case isString && isVariable(n.Left, "ip"):
		v.address(n.Right, text.Value)
	case isString:
		v.fail(n.Right, "write "+written(n.Left)+" in ["+strconv.Quote(text.Value)+"], or "+strconv.Quote(text.Value)+" contains "+written(n.Left),
			"behind `in` stands a list, and "+written(n.Right)+" is text")
	default:
		v.fail(n.Right, `an attribute is one value; of a text with commas split(attrs.tags, ",") makes a list`,
			"behind `in` stands a list, and "+written(n.Right)+" is "+r.String())
	}
}

func isVariable(n ast.Node, name string) bool {
	id, ok := n.(*ast.IdentifierNode)
	return ok && id.Value == name
}

// constant looks at a text that a variable is compared with, where its type would do: whether the
// variable can ever have it.
func (v *typeCheck) constant(n *ast.BinaryNode, variable, value ast.Node) {
	v.listed(variable, value)
	text, ok := value.(*ast.StringNode)
	if !ok {
		return
	}
	member, isMember := variable.(*ast.MemberNode)
	switch {
	case text.Value == "" && (isVariable(variable, "uid") || isVariable(variable, "ip") || isMember && isAttribute(member)):
		v.warn(value, "write "+written(variable)+" "+strings.TrimPrefix(n.Operator, "in")+" nil", written(variable)+" is never empty: where it is absent it is nil")
	case isVariable(variable, "ip"):
		if addr, err := netip.ParseAddr(text.Value); err != nil || addr.WithZone("").Unmap().String() != text.Value {
			v.address(value, text.Value)
		}
	case isVariable(variable, "api"):
		problem, hint := scalar.APIMistake(text.Value)
		if problem == "" && strings.Contains(text.Value, "*") {
			problem, hint = "patterns belong to match: "+strconv.Quote(text.Value)+" is no API's name", "write match: {api: "+strconv.Quote(text.Value)+"}"
		}
		if problem == "" && v.events.API != nil {
			problem, hint = v.events.API(text.Value)
		}
		if problem != "" {
			v.fail(value, hint, problem)
		}
	}
}

// address refuses a text that no event has as its ip, with what to write for a network.
func (v *typeCheck) address(at ast.Node, text string) {
	if addr, err := netip.ParseAddr(text); err == nil {
		v.fail(at, "write "+strconv.Quote(addr.WithZone("").Unmap().String()), "events have this address in another form: "+strconv.Quote(text))
		return
	}
	hint := "an address is written as in ip == \"192.0.2.1\""
	if network, err := netip.ParsePrefix(text); err == nil {
		hint = "write inNetwork(ip, " + strconv.Quote(network.Masked().String()) + ")"
	}
	v.fail(at, hint, "ip is one address, as text, and never equal to "+strconv.Quote(scalar.Shortened(text)))
}
