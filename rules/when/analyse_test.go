package when

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/logic"
)

// drawnPredicate draws a predicate over two attributes, the outcome and the hour.
func drawnPredicate(t *rapid.T, depth int) string {
	from := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, what) }
	if depth > 0 {
		left := func() string { return "(" + drawnPredicate(t, depth-1) + ")" }
		switch from("form", "and", "or", "not", "?:", "let", "atom", "and") {
		case "and":
			return left() + " and " + left()
		case "or":
			return left() + " or " + left()
		case "not":
			return "not " + left()
		case "?:":
			return left() + " ? " + left() + " : " + left()
		case "let":
			return "let v" + strconv.Itoa(depth) + " = attrs.a; v" + strconv.Itoa(depth) + " == 1 or " + drawnAtom(t)
		}
	}
	return drawnAtom(t)
}

func drawnAtom(t *rapid.T) string {
	from := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, what) }
	number := func() string { return from("number", "-1", "0", "1", "2", "2.5", "3", "6", "22", "23", "24") }
	text := func() string { return from("text", `"a"`, `"ab"`, `"b"`, `""`, `"1"`) }
	of := from("of", "attrs.a", `attrs["b"]`, "outcome", "uid", "cost", "time.Hour()", "int(time.Weekday())", "attrs.a", "len(outcome)", "attrs.a + attrs.b")
	switch from("comparison", "number", "number", "text", "in", "nil", "self", "mixed", "string", "test", "there", "two") {
	case "number":
		return of + " " + from("operator", "==", "!=", "<", "<=", ">", ">=") + " " + number()
	case "text":
		return of + " " + from("operator", "==", "!=", "<") + " " + text()
	case "in":
		return of + " in [" + number() + ", " + text() + ", " + number() + "]"
	case "nil":
		return of + from("operator", " == ", " != ") + "nil"
	case "mixed":
		return number() + " < " + of
	case "string":
		return "time.Weekday().String() " + from("operator", "==", "!=", "startsWith") + " " + from("day", `"Saturday"`, `"S"`, `"Sun"`)
	case "test":
		return of + " " + from("operator", "startsWith", "endsWith", "contains", "matches") + " " + text()
	case "there":
		return from("there", `"a" in attrs`, `"b" in attrs`, "attrs.a == true", "attrs.b != false")
	case "two":
		return "attrs.a " + from("operator", "==", "<", "!=") + " attrs.b"
	}
	return from("self", "attrs.a", "attrs.b", "true", "false")
}

// drawnEvents are all events over small sets of values.
func drawnEvents() (out []*event.Event, at []event.Micros) {
	values := []event.Value{{}, event.StringValue("a"), event.StringValue("ab"), event.StringValue("1"), event.NumberValue(event.One), event.NumberValue(5 * event.One / 2),
		event.NumberValue(22 * event.One), event.NumberValue(-event.One), event.BoolValue(true), event.BoolValue(false)}
	for i, a := range values {
		for j, b := range values {
			for k, outcome := range []string{"a", "", "ab"} {
				e := &event.Event{API: "x", Outcome: outcome, Cost: event.Decimal(k) * event.One, Attrs: []event.Attr{{Name: "a", Value: a}, {Name: "b", Value: b}}}
				if (i+j+k)%2 == 0 {
					e.UID = "a"
				}
				out = append(out, e)
				at = append(at, event.FromTime(time.Date(2026, 11, 21+(i+k)%7, []int{0, 6, 12, 22, 23}[(i+j)%5], 0, 0, 0, time.UTC)))
			}
		}
	}
	return out, at
}

// analysisErrsToOneSide draws predicates: one that holds for some event is never called impossible, together
// with what it is asked beside, and what one leaves over is never called covered.
func analysisErrsToOneSide(t *rapid.T) {
	type compiled struct {
		source  string
		p       *Predicate
		formula logic.Formula
	}
	var both [2]compiled
	for i := range both {
		c := &both[i]
		c.source = drawnPredicate(t, 3)
		if c.p, _ = Compile(c.source, zones{}); c.p == nil {
			t.Skip("expr refuses it")
		}
		var told []Mistake
		c.formula, told = Analyse(c.source, Declared{})
		for _, m := range told {
			if m.At < 0 || m.At > len(c.source) || m.Message == "" {
				t.Fatalf("%s: %+v", c.source, m)
			}
		}
	}
	a, b, s := both[0], both[1], &logic.Solver{}
	together, after := s.And(a.formula.True, b.formula.True), s.And(s.DoesNotHold(a.formula), b.formula.True)
	ev := NewEvaluator()
	ev.Know(a.p)
	ev.Know(b.p)
	events, at := drawnEvents()
	for i, e := range events {
		ev.Next()
		first, firstOK := ev.Holds(a.p, e, at[i])
		second, _ := ev.Holds(b.p, e, at[i])
		switch {
		case first && a.formula.True.Never():
			t.Fatalf("%s never holds, it says; it does for %+v at %v", a.source, e, at[i])
		case firstOK && !first && a.formula.False.Never():
			t.Fatalf("%s always holds, it says; it does not for %+v at %v", a.source, e, at[i])
		case first && second && together.Never():
			t.Fatalf("%s and %s contradict each other, it says; both hold for %+v at %v", a.source, b.source, e, at[i])
		case !first && second && after.Never():
			t.Fatalf("%s covers %s, it says; not for %+v at %v", a.source, b.source, e, at[i])
		}
	}
}

func TestAnalysisErrsToOneSide(t *testing.T) { rapid.Check(t, analysisErrsToOneSide) }

func FuzzContradictions(f *testing.F) { f.Fuzz(rapid.MakeFuzz(analysisErrsToOneSide)) }

// A condition without a value ends the predicate, and is false: found by seed 8937180795101243317 of the test above.
func TestALastConditionWithoutAValueIsFalse(t *testing.T) {
	source := "attrs.a != nil or attrs.a"
	p, mistakes := Compile(source, zones{})
	if p == nil {
		t.Fatal(mistakes)
	}
	ev := NewEvaluator()
	ev.Know(p)
	holds, ok := ev.Holds(p, &event.Event{}, 0)
	if f, _ := Analyse(source, Declared{}); holds || !ok || f.False.Never() {
		t.Errorf("holds: %t, evaluated: %t, and it may be false: %t", holds, ok, !f.False.Never())
	}
}
