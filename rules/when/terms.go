package when

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"

	"github.com/tallygate/tallygate/rules/internal/logic"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// constant is the value that a comparison is with.
type constant struct {
	kind   logic.Kinds
	text   string
	number float64
	unsafe bool // a number that float64 does not have
}

func constantOf(n ast.Node) (constant, bool) {
	switch n := n.(type) {
	case *ast.NilNode:
		return constant{kind: logic.Nil}, true
	case *ast.StringNode:
		return constant{kind: logic.Text, text: n.Value}, true
	case *ast.BoolNode:
		if n.Value {
			return constant{kind: logic.True}, true
		}
		return constant{kind: logic.False}, true
	case *ast.IntegerNode:
		return numberConstant(float64(n.Value)), true
	case *ast.FloatNode:
		return numberConstant(n.Value), true
	case *ast.UnaryNode:
		if c, ok := constantOf(n.Node); ok && c.kind == logic.Number && n.Operator == "-" {
			return numberConstant(-c.number), true
		}
	}
	return constant{}, false
}

func numberConstant(n float64) constant {
	const exact = 1 << 53
	return constant{kind: logic.Number, number: n, unsafe: math.IsNaN(n) || math.Abs(n) >= exact}
}

// compared returns what a term is for which a comparison with the constant is true, and for which it is false.
// Where neither holds, it fails. ok is false for a comparison that is not understood.
func (c constant) compared(op string) (holds, not logic.Domain, ok bool) {
	if c.unsafe {
		return holds, not, false
	}
	switch op {
	case "==":
		holds, not = logic.OfKinds(c.kind), logic.OfKinds(logic.Anything&^logic.Fails)
		switch c.kind {
		case logic.Text:
			holds.Texts, not.NotTexts = []string{c.text}, []string{c.text}
		case logic.Number:
			holds.Numbers, not.NotNumbers = []float64{c.number}, []float64{c.number}
		default:
			not.Kinds &^= c.kind
		}
		return holds, not, true
	case "!=":
		not, holds, ok = c.compared("==")
		return holds, not, ok
	case "<", "<=", ">", ">=":
		return c.ordered(op)
	}
	if c.kind != logic.Text {
		return holds, not, false
	}
	holds, not = logic.OfKinds(logic.Text), logic.OfKinds(logic.Text|logic.Nil)
	test := logic.Test{Op: op, With: c.text, Holds: textTest(op, c.text)}
	contrary := test
	test.Wanted = true
	holds.Tests, not.Tests = []logic.Test{test}, []logic.Test{contrary}
	return holds, not, true
}

func (c constant) ordered(op string) (holds, not logic.Domain, ok bool) {
	if c.kind != logic.Number {
		return holds, not, false
	}
	below, above := logic.OfKinds(logic.Number), logic.OfKinds(logic.Number)
	below.High, above.Low = c.number, c.number
	switch op {
	case "<", ">=":
		below.HighOpen = true
	default:
		above.LowOpen = true
	}
	if strings.HasPrefix(op, "<") {
		return below, above, true
	}
	return above, below, true
}

// textTest is a test of texts that are known; nil where it would cost too much.
func textTest(op, with string) func(string) bool {
	switch op {
	case "startsWith":
		return func(text string) bool { return strings.HasPrefix(text, with) }
	case "endsWith":
		return func(text string) bool { return strings.HasSuffix(text, with) }
	case "contains":
		return func(text string) bool { return strings.Contains(text, with) }
	case "matches":
		if patternSize(with) <= maxTextPattern {
			if re, err := regexp.Compile(with); err == nil {
				return re.MatchString
			}
		}
	}
	return nil
}

// term is something that has a value at each event.
type term struct {
	name string // the same for the same
	base logic.Domain
	says string // what it can be, for messages; "" where that is no short list
}

// formula combines the term's domains of true and false.
func (t term) formula(holds, not logic.Domain) logic.Formula {
	f := logic.Formula{True: logic.Of(t.name, t.base.And(holds)), False: logic.Of(t.name, t.base.And(not))}
	if left := t.base.Kinds &^ (holds.Kinds | not.Kinds); left != 0 {
		f.Fails = logic.Of(t.name, t.base.And(logic.OfKinds(left)))
	}
	return f
}

// AttrTerm is the name of an attribute's term. Terms of other variables have the names of these.
func AttrTerm(name string) string { return attrVariable(name) }

// VariableDomain returns the values of a variable: uid, ip, api, outcome, id or cost.
func VariableDomain(name string) (logic.Domain, bool) {
	switch name {
	case "id", "api", "outcome":
		return logic.OfKinds(logic.Text), true
	case "uid", "ip":
		d := logic.OfKinds(logic.Text | logic.Nil)
		d.NotTexts = []string{""}
		return d, true
	case "cost":
		return logic.Span(0, math.Inf(1), false), true
	}
	return logic.Domain{}, false
}

// AttrDomain returns the values of an attribute.
func (as Attrs) AttrDomain(name string) logic.Domain {
	k := logic.Text | logic.Number | logic.Bool
	a := as[name]
	if a != nil {
		k = 0
		for _, is := range []struct {
			there bool
			kind  logic.Kinds
		}{{a.Text, logic.Text}, {a.Number, logic.Number}, {a.Bool, logic.Bool}} {
			if is.there {
				k |= is.kind
			}
		}
	}
	d := logic.OfKinds(k | logic.Nil)
	d.NotTexts = []string{""}
	if a != nil && a.Values != nil && k == logic.Text {
		d.Texts = a.Values
	}
	return d
}

func (r *formulaReader) attribute(name string) term {
	return term{name: AttrTerm(name), base: r.attrs.AttrDomain(name)}
}

// clockParts are the results of a time's methods.
var clockParts = map[string]struct {
	low, high float64
	round     bool // after the last one comes the first
}{
	"Hour": {0, 23, true}, "Minute": {0, 59, true}, "Second": {0, 59, true}, "Nanosecond": {0, 999_999_999, false}, "Day": {1, 31, true}, "YearDay": {1, 366, true},
	"Weekday": {0, 6, true}, "Month": {1, 12, true},
}

// isRound reports whether a term's values go on with the first one after the last.
func isRound(name string) bool {
	for part, is := range clockParts {
		if is.round && strings.Contains(name, "."+part+"()") {
			return true
		}
	}
	return false
}

// shortTerm is a term in messages.
func shortTerm(name string) string {
	name, _, _ = strings.Cut(name, "\x00")
	return scalar.Shortened(name)
}

// term reads what is compared.
func (r *formulaReader) term(n ast.Node) term {
	switch n := n.(type) {
	case *ast.ChainNode:
		return r.term(n.Node)
	case *ast.IdentifierNode:
		if value := r.lets[n.Value]; value != nil {
			return r.term(value)
		}
		if base, ok := VariableDomain(n.Value); ok {
			return term{name: n.Value, base: base}
		}
	case *ast.MemberNode:
		if name, ok := n.Property.(*ast.StringNode); ok && isAttribute(n) {
			return r.attribute(name.Value)
		}
	case *ast.BuiltinNode:
		if n.Name == "get" && len(n.Arguments) == 2 && isVariable(n.Arguments[0], "attrs") {
			if name, ok := n.Arguments[1].(*ast.StringNode); ok {
				return r.attribute(name.Value)
			}
		}
	}
	t := term{name: n.String(), base: logic.OfKinds(logic.Anything)}
	if len(r.lets) > 0 {
		t.name += "\x00" + r.source // the same name may be of something else in another predicate
	}
	if base, says, ok := computed(n); ok {
		t.base, t.says = base, says
	}
	return t
}

// computed returns the results of a call, as far as they are known.
func computed(n ast.Node) (base logic.Domain, says string, ok bool) {
	switch n := n.(type) {
	case *ast.ChainNode:
		return computed(n.Node)
	case *ast.BuiltinNode:
		return computedBy(n)
	case *ast.CallNode:
		part, of := method(n)
		if is, known := clockParts[part]; known && part != "Weekday" && part != "Month" {
			base = logic.Span(is.low, is.high, true)
			return failing(base, of), numbersFrom(is.low, is.high), true
		}
		if part == "String" {
			if inner, ok := of.(*ast.CallNode); ok {
				return civilName(inner)
			}
		}
	}
	return base, "", false
}

func computedBy(n *ast.BuiltinNode) (base logic.Domain, says string, ok bool) {
	if len(n.Arguments) != 1 {
		return base, "", false
	}
	inner, isCall := n.Arguments[0].(*ast.CallNode)
	switch n.Name {
	case "int":
		if part, of := method(inner); isCall && (part == "Weekday" || part == "Month") {
			is := clockParts[part]
			return failing(logic.Span(is.low, is.high, true), of), numbersFrom(is.low, is.high), true
		}
	case "string":
		if isCall {
			return civilName(inner)
		}
	case "lower", "upper":
		base, says, ok = computed(n.Arguments[0])
		for i, text := range base.Texts {
			if i == 0 {
				base.Texts = append([]string(nil), base.Texts...)
			}
			if base.Texts[i] = strings.ToLower(text); n.Name == "upper" {
				base.Texts[i] = strings.ToUpper(text)
			}
		}
		return base, says, ok && base.Texts != nil
	case "len":
		base = logic.Span(0, math.Inf(1), true)
		base.Kinds |= logic.Fails
		return base, "0 or more", true
	}
	return base, "", false
}

func numbersFrom(low, high float64) string {
	return "from " + strconv.FormatFloat(low, 'f', -1, 64) + " to " + strconv.FormatFloat(high, 'f', -1, 64)
}

// method takes a call of a method without arguments apart.
func method(n *ast.CallNode) (name string, of ast.Node) {
	if n == nil || len(n.Arguments) > 0 {
		return "", nil
	}
	member, ok := n.Callee.(*ast.MemberNode)
	if !ok {
		return "", nil
	}
	property, _ := member.Property.(*ast.StringNode)
	if property == nil {
		return "", nil
	}
	return property.Value, member.Node
}

// failing adds that a value cannot be computed, unless it is one of the event's time.
func failing(d logic.Domain, of ast.Node) logic.Domain {
	if !isVariable(of, "time") {
		d.Kinds |= logic.Fails
	}
	return d
}

// civilName is the name of a month or of a day of the week.
func civilName(n *ast.CallNode) (base logic.Domain, says string, ok bool) {
	part, of := method(n)
	base = logic.OfKinds(logic.Text)
	switch part {
	case "Month":
		for m := time.January; m <= time.December; m++ {
			base.Texts = append(base.Texts, m.String())
		}
	case "Weekday":
		for d := time.Sunday; d <= time.Saturday; d++ {
			base.Texts = append(base.Texts, d.String())
		}
	default:
		return base, "", false
	}
	return failing(base, of), "a name such as " + base.Texts[1], true
}

// impossible tells of a comparison with what the term never is. With != it would hold for every event, which is
// as wrong.
func (r *formulaReader) impossible(n *ast.BinaryNode, at ast.Node, t term, c constant, op string, f logic.Formula) {
	never := f.True.Never()
	if op == "!=" {
		never = f.False.Never()
	}
	if !never || t.says == "" && t.name != "cost" || t.base.Kinds&c.kind == 0 {
		return
	}
	says, hint := t.says, ""
	if t.name == "cost" {
		says, hint = "0 or more", "what is taken back is no event of `match`: see refunds"
	}
	if c.kind == logic.Text {
		for _, text := range t.base.Texts {
			if len(c.text) > 1 && strings.HasPrefix(strings.ToLower(text), strings.ToLower(c.text)) {
				hint = "did you mean \"" + text + "\"?"
			}
		}
	}
	r.mistakes = append(r.mistakes, Mistake{At: at.Location().From, Severity: Never, Hint: hint,
		Message: "when: " + shortTerm(t.name) + " is " + says + ", and never " + strings.TrimPrefix(strings.TrimPrefix(op+" ", "== "), "!= ") + written(at)})
}
