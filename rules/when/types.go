package when

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"

	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// kinds is a set of what a value can be. expr knows the type of uid, ip and attributes only when a predicate
// runs, so it accepts comparisons of them that never hold. What they can be is known here.
type kinds uint16

const (
	isText kinds = 1 << iota
	isNumber
	isBool
	isNil
	isMoment     // time.Time
	isSpan       // time.Duration
	isCivil      // time.Weekday and time.Month: no numbers, for expr
	isCollection // lists and maps
	isOther

	isAttr   = isText | isNumber | isBool | isNil
	isAny    = isAttr | isMoment | isSpan | isCivil | isCollection | isOther
	hasOrder = isText | isNumber | isMoment | isSpan | isCivil
)

// only reports whether all that k can be is in of.
func (k kinds) only(of kinds) bool { return k&^of == 0 }

// String names a set for messages.
func (k kinds) String() string {
	names := []string{"text", "a number", "true or false", "nil", "a time", "a duration", "a day or a month", "a list or a map"}
	var out []string
	for i, name := range names {
		if k&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	switch n := len(out); n {
	case 0:
		return "something else"
	case 1:
		return out[0]
	default:
		return strings.Join(out[:n-1], ", ") + " or " + out[n-1]
	}
}

// variableKinds are the kinds of the variables of predicates.
var variableKinds = map[string]kinds{
	"id": isText, "api": isText, "outcome": isText, "cost": isNumber, "time": isMoment, "attrs": isCollection,
	"uid": isText | isNil, "ip": isText | isNil,
}

// typeCheck finds what can never hold in a predicate, or always fails, whatever the event.
type typeCheck struct {
	events Declared
	nodes  []ast.Node                         // all of the tree, children before their parents
	lets   map[string]ast.Node                // variables of the predicate's own; nil: of several values
	lists  map[*ast.BinaryNode]*ast.ArrayNode // what stood behind `in` before it was made a constant

	mistakes []Mistake
}

func (v *typeCheck) note(n ast.Node) {
	v.nodes = append(v.nodes, n)
	let, ok := n.(*ast.VariableDeclaratorNode)
	if !ok {
		return
	}
	if v.lets == nil {
		v.lets = map[string]ast.Node{}
	}
	if _, twice := v.lets[let.Name]; twice {
		v.lets[let.Name] = nil
		return
	}
	v.lets[let.Name] = let.Value
}

func (v *typeCheck) fail(n ast.Node, hint, message string) {
	v.mistakes = append(v.mistakes, Mistake{At: n.Location().From, Message: "when: " + message, Hint: hint, Severity: Never})
}

func (v *typeCheck) warn(n ast.Node, hint, message string) {
	v.mistakes = append(v.mistakes, Mistake{At: n.Location().From, Message: "when: " + message, Hint: hint, Severity: Doubt})
}

// finish looks at the whole tree.
func (v *typeCheck) finish() []Mistake {
	for _, n := range v.nodes {
		switch n := n.(type) {
		case *ast.BinaryNode:
			v.binary(n)
		case *ast.MemberNode:
			v.member(n)
		case *ast.BuiltinNode:
			v.builtin(n)
		case *ast.CallNode:
			v.call(n)
		case *ast.UnaryNode:
			if n.Operator == "not" || n.Operator == "!" {
				v.yesOrNo(n.Node)
			}
		case *ast.ConditionalNode:
			v.yesOrNo(n.Cond)
		}
	}
	if len(v.nodes) > 0 {
		v.yesOrNo(v.nodes[len(v.nodes)-1])
	}
	slices.SortStableFunc(v.mistakes, func(a, b Mistake) int { return a.At - b.At })
	return slices.CompactFunc(v.mistakes, func(a, b Mistake) bool { return a == b })
}

// of returns what a node's value can be.
func (v *typeCheck) of(n ast.Node) kinds {
	switch n := n.(type) {
	case *ast.NilNode:
		return isNil
	case *ast.IdentifierNode:
		return v.variable(n)
	case *ast.MemberNode:
		if a, _ := v.declared(n); a != nil {
			return a.kinds()
		}
		if isAttribute(n) {
			return isAttr
		}
	case *ast.ChainNode:
		return v.of(n.Node) | isNil
	case *ast.ConditionalNode:
		return v.of(n.Exp1) | v.of(n.Exp2)
	case *ast.VariableDeclaratorNode:
		return v.of(n.Expr)
	case *ast.BinaryNode:
		switch n.Operator {
		case "??":
			return v.of(n.Left)&^isNil | v.of(n.Right)
		case "and", "&&", "or", "||", "==", "!=", "<", "<=", ">", ">=", "in", "matches", "contains", "startsWith", "endsWith":
			return isBool
		}
	case *ast.ConstantNode:
		return kindsOfType(reflect.TypeOf(n.Value))
	}
	return kindsOfType(n.Type())
}

func (v *typeCheck) variable(n *ast.IdentifierNode) kinds {
	if k, ok := variableKinds[n.Value]; ok {
		return k
	}
	if value := v.lets[n.Value]; value != nil {
		return v.of(value)
	}
	return kindsOfType(n.Type())
}

// isAttribute reports whether a member is attrs.NAME or attrs[…].
func isAttribute(n *ast.MemberNode) bool {
	of, ok := n.Node.(*ast.IdentifierNode)
	return ok && of.Value == "attrs"
}

func kindsOfType(t reflect.Type) kinds {
	switch t {
	case nil:
		return isAny
	case reflect.TypeFor[time.Time]():
		return isMoment
	case reflect.TypeFor[time.Duration]():
		return isSpan
	case reflect.TypeFor[time.Weekday](), reflect.TypeFor[time.Month]():
		return isCivil
	}
	switch k := t.Kind(); {
	case k == reflect.String:
		return isText
	case k >= reflect.Int && k <= reflect.Uint64, k == reflect.Float32, k == reflect.Float64:
		return isNumber
	case k == reflect.Bool:
		return isBool
	case k == reflect.Slice, k == reflect.Array, k == reflect.Map:
		return isCollection
	case k == reflect.Interface:
		return isAny
	}
	return isOther
}

// yesOrNo refuses a condition that is never true or false.
func (v *typeCheck) yesOrNo(n ast.Node) {
	if k := v.of(n); k&isBool == 0 {
		v.fail(n, "compare it with something, as in "+written(n)+" != nil", written(n)+" is "+k.String()+", and not true or false")
	}
}

// written is a part of a predicate as text, short enough for a message.
func written(n ast.Node) string {
	if c, ok := n.(*ast.ChainNode); ok {
		n = c.Node
	}
	return scalar.Shortened(n.String())
}

// member refuses what looks for something in an attribute, or in another value that has nothing in it.
func (v *typeCheck) member(n *ast.MemberNode) {
	if name, ok := n.Property.(*ast.StringNode); ok && isAttribute(n) {
		v.known(n, name.Value)
	}
	if isAttribute(n) || !v.of(n.Node).only(isAttr) {
		return
	}
	of, name := written(n.Node), ""
	if property, ok := n.Property.(*ast.StringNode); ok {
		name = property.Value
	}
	base, _ := n.Node.(*ast.MemberNode)
	if chain, ok := n.Node.(*ast.ChainNode); ok {
		base, _ = chain.Node.(*ast.MemberNode)
	}
	hint := "its first character is " + of + "[0:1]"
	if base != nil && isAttribute(base) {
		hint = "emit what is to be counted as an attribute of its own"
		if parent, ok := base.Property.(*ast.StringNode); ok && name != "" {
			hint = `emit it as an attribute of its own, such as ` + parent.Value + `_` + name + `; one whose name is "` +
				parent.Value + `.` + name + `" is attrs["` + parent.Value + `.` + name + `"]`
		}
		v.fail(n, hint, "attributes are flat: there is nothing in "+of)
		return
	}
	v.fail(n, hint, "there is nothing in "+of+": it is "+v.of(n.Node).String())
}

// overLists are builtins whose first argument is a list, or a map.
var overLists = strings.Fields("all none any one filter map find findIndex findLast findLastIndex count sum mean median first last take " +
	"join sort sortBy groupBy countBy reduce concat flatten uniq keys values toPairs fromPairs reverse")

func (v *typeCheck) builtin(n *ast.BuiltinNode) {
	if n.Name == "get" && len(n.Arguments) == 2 && isVariable(n.Arguments[0], "attrs") {
		if name, ok := n.Arguments[1].(*ast.StringNode); ok {
			v.known(name, name.Value)
		}
	}
	if len(n.Arguments) == 0 || !slices.Contains(overLists, n.Name) {
		return
	}
	if k := v.of(n.Arguments[0]); k&isCollection == 0 {
		v.fail(n.Arguments[0], `an attribute is one value; of a text with commas split(attrs.tags, ",") makes a list`,
			n.Name+"() takes a list, and "+written(n.Arguments[0])+" is "+k.String())
	}
}

func (v *typeCheck) binary(n *ast.BinaryNode) {
	l, r := v.of(n.Left), v.of(n.Right)
	switch n.Operator {
	case "and", "&&", "or", "||":
		v.yesOrNo(n.Left)
		v.yesOrNo(n.Right)
	case "==", "!=":
		v.equality(n, n.Left, n.Right)
	case "in":
		v.membership(n)
	case "<", "<=", ">", ">=":
		if l&r&hasOrder == 0 {
			v.fail(n, howToCompare(n.Left, n.Right, l, r), written(n.Left)+" is "+l.String()+", and "+written(n.Right)+" "+r.String()+": neither is less than the other")
		}
	case "matches", "contains", "startsWith", "endsWith":
		for _, side := range []ast.Node{n.Left, n.Right} {
			if k := v.of(side); k&isText == 0 && !(n.Operator == "matches" && side == n.Right && k&isOther != 0) {
				v.fail(side, "write string("+written(side)+"), or compare numbers with == and <", n.Operator+" is for text, and "+written(side)+" is "+k.String())
			}
		}
	case "-", "*", "/", "%", "**", "^":
		for _, side := range []ast.Node{n.Left, n.Right} {
			if k := v.of(side); k.only(isText | isBool | isNil) {
				v.fail(side, "a number of text is int("+written(side)+") or float("+written(side)+")", n.Operator+" is for numbers, and "+written(side)+" is "+k.String())
			}
		}
	case "+":
		if (l | r).only(isAttr) && l&r&(isText|isNumber) == 0 {
			v.fail(n, "a number of text is int(…), text of a number string(…)", written(n.Left)+" is "+l.String()+", and "+written(n.Right)+" "+r.String()+": they have no sum")
		}
	}
}
