package when

import (
	"regexp/syntax"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
)

// A regular expression of 4 KB took 700 MB: it is measured before it is compiled.
func TestLargeRegularExpressionsAreRefused(t *testing.T) {
	for _, pattern := range []string{
		strings.Repeat("x{0,1000}", 400), strings.Repeat("((ab){10}){50}c|", 12), `\\pL{1000}`, strings.Repeat("(?i)([a-z]{1,64}[.]){15}", 12), strings.Repeat("(ab|cd){500}", 10),
	} {
		for _, source := range []string{`attrs.a matches "` + pattern + `"`, `cost > 1 and not (attrs.a matches ("` + pattern + `" + "` + "x" + `"))`} {
			if _, ok := syntax.Parse(strings.ReplaceAll(pattern, `\\`, `\`), syntax.Perl); ok != nil {
				t.Fatalf("%.40s: %v", pattern, ok)
			}
			p, mistakes := CompileOver(source, zones{}, Declared{}, &Patterns{})
			if p != nil || len(mistakes) != 1 || !strings.Contains(mistakes[0].Message, "too large") || mistakes[0].Hint == "" || mistakes[0].At == 0 {
				t.Errorf("%.60s: %v", source, mistakes)
			}
		}
	}
	if p, mistakes := CompileOver(`attrs.mail matches "^[a-z0-9._%+-]{1,64}@([a-z0-9-]{1,63}[.]){1,8}[a-z]{2,63}$"`, zones{}, Declared{}, &Patterns{}); p == nil {
		t.Error(mistakes)
	}
}

// Many that are small enough are too many together.
func TestRegularExpressionsOfAFileHaveABudget(t *testing.T) {
	budget, refused := &Patterns{}, 0
	for range 20 {
		if p, _ := CompileOver(`attrs.a matches "`+strings.Repeat("x{900}", 10)+`"`, zones{}, Declared{}, budget); p == nil {
			refused++
		}
	}
	if refused != 9 {
		t.Errorf("%d of 20 were refused", refused)
	}
}

// The estimate is never below the program that is made, but for what the compiler adds to all of them.
func TestEstimateIsNoLessThanTheProgram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var draw func(depth int) string
		draw = func(depth int) string {
			if depth == 0 {
				return rapid.SampledFrom([]string{"a", "ab", "[a-z]", `\d`, ".", "^", "$", "(?i)k", `\pL`}).Draw(t, "atom")
			}
			x, y := "(?:"+draw(depth-1)+")", "("+draw(depth-1)+")"
			return rapid.SampledFrom([]string{x + y, x + "|" + y, x + "*", y + "+?", x + "{3}", y + "{2,}", x + "{0,4}", y + "?"}).Draw(t, "form")
		}
		pattern := draw(rapid.IntRange(0, 4).Draw(t, "depth"))
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Skip()
		}
		program, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Skip()
		}
		const added = 3 // it begins, fails and matches
		if size := patternSize(pattern); 2*size+added < len(program.Inst) {
			t.Fatalf("%s: estimated %d, has %d instructions", pattern, size, len(program.Inst))
		}
	})
}

// An event may bring a regular expression, but not any.
func TestRegularExpressionsOfEventsAreBounded(t *testing.T) {
	p, mistakes := Compile(`attrs.a matches attrs.b`, zones{})
	if p == nil {
		t.Fatal(mistakes)
	}
	folded, mistakes := Compile(`attrs.a matches "^x" + "+$"`, zones{})
	if folded == nil {
		t.Fatal(mistakes)
	}
	ev := NewEvaluator()
	ev.Know(p)
	ev.Know(folded)
	for _, test := range []struct {
		a, b      event.Value
		holds, ok bool
	}{
		{event.StringValue("xx"), event.StringValue("^x+$"), true, true},
		{event.StringValue("xy"), event.StringValue("^x+$"), false, true},
		{event.StringValue("xx"), event.Value{}, false, true},
		{event.StringValue("xx"), event.StringValue("x{900}x{900}"), false, false},
		{event.StringValue("xx"), event.StringValue("("), false, false},
		{event.StringValue("xx"), event.NumberValue(event.One), false, false},
	} {
		e := &event.Event{API: "x", Cost: event.One, Attrs: []event.Attr{{Name: "a", Value: test.a}, {Name: "b", Value: test.b}}}
		ev.Next()
		if holds, ok := ev.Holds(p, e, 0); holds != test.holds || ok != test.ok {
			t.Errorf("%v matches %v: %t, %t", test.a, test.b, holds, ok)
		}
		if holds, _ := ev.Holds(folded, e, 0); holds != (test.a.Text == "xx") {
			t.Errorf("%v: %t", test.a, holds)
		}
	}
}
