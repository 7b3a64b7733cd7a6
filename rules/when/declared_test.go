package when

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
)

// Whatever is declared: a comparison that is refused holds for no event that fits.
func TestRefusedComparisonsHoldForNoEventThatFits(t *testing.T) {
	list := func(a Attr, values ...string) *Attr {
		for _, v := range values {
			a.List(v)
		}
		return &a
	}
	types := []*Attr{
		{Text: true}, {Number: true}, {Bool: true}, {Text: true, Number: true, Bool: true},
		list(Attr{Text: true}, "pro", "1"), list(Attr{Number: true}, "1", "-2.5"), list(Attr{Bool: true}, "true"), list(Attr{Text: true, Number: true}, "pro", "7"),
	}
	values := []event.Value{
		event.StringValue("pro"), event.StringValue("1"), event.StringValue("x"), event.NumberValue(event.One), event.NumberValue(-5 * event.One / 2),
		event.NumberValue(7 * event.One), event.BoolValue(true), event.BoolValue(false), {},
	}
	parts := []string{
		"attrs.a", "attrs.b", `attrs["a"]`, "attrs?.b", `"pro"`, `"1"`, `"x"`, "1", "-2.5", "7.0", "true", "false", "nil", `(attrs.a ?? "pro")`, `["pro", 1, true]`,
		"[-2.5, 7]", `["x", "pro"]`,
	}
	rapid.Check(t, func(t *rapid.T) {
		attrs := Attrs{"a": rapid.SampledFrom(types).Draw(t, "a"), "b": rapid.SampledFrom(types).Draw(t, "b")}
		predicate := rapid.SampledFrom(parts).Draw(t, "left") + " " + rapid.SampledFrom([]string{"==", "in", "<", "startsWith"}).Draw(t, "operator") +
			" " + rapid.SampledFrom(parts).Draw(t, "right")
		p, mistakes := CompileOver(predicate, zones{}, Declared{Attrs: attrs, Guess: DidYouMean}, &Patterns{})
		if p == nil || !slices.ContainsFunc(mistakes, func(m Mistake) bool {
			return m.Severity == Never && !strings.Contains(m.Message, "not true or false")
		}) {
			return
		}
		whole := strings.Contains(predicate, "[") && strings.Contains(predicate, " in ") // one item of a list is refused, others may hold
		for _, a := range values {
			for _, b := range values {
				e := &event.Event{API: "x", Cost: event.One, Attrs: []event.Attr{{Name: "a", Value: a}, {Name: "b", Value: b}}}
				if whole || !fits(attrs["a"], a) || !fits(attrs["b"], b) {
					continue
				}
				ev := NewEvaluator()
				ev.Know(p)
				if holds, _ := ev.Holds(p, e, 0); holds {
					t.Fatalf("%s is refused (%v), and holds for %+v", predicate, mistakes, e.Attrs)
				}
			}
		}
	})
}

func fits(a *Attr, v event.Value) bool { return v.Text == "" || a.Fits(v.Kind) && a.Has(v.Text) }

// What is refused, and what is not, by the types that are declared.
func TestDeclaredTypes(t *testing.T) {
	plan, size := &Attr{Text: true}, &Attr{Number: true}
	plan.List("free")
	plan.List("pro")
	size.List("1")
	attrs := Attrs{"plan": plan, "size": size, "amount": {Number: true}, "vip": {Bool: true}, "device": {Text: true}, "any": {Text: true, Number: true, Bool: true}}
	for predicate, says := range map[string]string{
		`attrs.plan == "pro" and attrs.vip and attrs.amount > 3 and attrs.device matches "^a"`: "",
		`attrs.any == 1 or attrs.any == "x" or attrs.any`:                                      "",
		`attrs.plan in ["free", "pro"] and attrs.size == 1.0 and attrs.plan != nil`:            "",
		`"plan" in attrs and get(attrs, "vip") == true and len(attrs) > 2`:                     "",
		`let p = attrs.plan; p == "gold"`:                                                      `and never "gold"`,
		`"gold" == attrs.plan`:                                                                 `and never "gold"`,
		`attrs.size == -1`:                                                                     `attrs.size is "1", and never "-1"`,
		`not (attrs["plan"] != "prO")`:                                                         `did you mean "pro"`,
		`get(attrs, "plans") == 1`:                                                             `attrs.plans is not declared; did you mean "plan"?`,
		`attrs.device > 3`:                                                                     "neither is less",
		`attrs.amount contains "3"`:                                                            "contains is for text",
		`attrs.device * 2 > 1`:                                                                 "* is for numbers",
		`attrs.amount`:                                                                         "not true or false",
		`attrs.vip == 1`:                                                                       "never equal",
		`api == "shop"`:                                                                        "no such API",
	} {
		_, mistakes := CompileOver(predicate, zones{}, Declared{Attrs: attrs, Guess: DidYouMean, API: func(string) (string, string) { return "no such API", "" }}, &Patterns{})
		switch {
		case says == "" && len(mistakes) > 0:
			t.Errorf("%s: %v", predicate, mistakes)
		case says != "" && (len(mistakes) != 1 || mistakes[0].Severity != Never || !strings.Contains(mistakes[0].Message, says)):
			t.Errorf("%s: %v, want %q", predicate, mistakes, says)
		}
	}
}
