package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/expr-lang/expr/builtin"
	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
)

// Predicates that have a map's order, or ask the machine, are refused: they would differ between two
// replays of one topic.
func TestWhenRefusesWhatDependsOnOrder(t *testing.T) {
	for _, when := range []string{
		`keys(attrs)[0] == "a"`, `values(attrs)[0] == 1`, `toPairs(attrs)[0][0] == "a"`, `join(keys(attrs), ",") == "a,b"`,
		`first(keys(attrs)) == "a"`, `last(attrs | values()) == 1`, `any(values(attrs), # > 1)`, `sum(values(attrs)) > 1`,
		`let m = attrs; keys(m)[0] == "a"`, `keys(fromJSON(attrs.json))[0] == "a"`, `sort(values(attrs))[0] == 1`,
		`sort(keys(groupBy([1, 1.0], #)))[0] == 1`, `string(groupBy(["a"], #)) == ""`, `findIndex(keys(attrs), # == "a") == 0`,
		`keys({"a": 1, "b": 2})[0] == "a"`, `reduce(values(attrs), #acc + #, 0) > 1`, `toJSON(keys(attrs)) == ""`,
		`string(time.Hour) != ""`, `let f = time.Local; f().Hour() > 3`,
	} {
		if _, err := compileWhenRule(when); err == nil || !strings.Contains(err.Error(), "when: ") {
			t.Errorf("%s: %v", when, err)
		}
	}
}

func TestWhenTakesWhatDependsOnNoOrder(t *testing.T) {
	for _, when := range []string{
		`"a" in keys(attrs)`, `1 in values(attrs)`, `len(keys(attrs)) == 26`, `len(values(attrs)) == 26`, `sort(keys(attrs))[0] == "a"`,
		`join(sort(keys(attrs)), "") startsWith "abc"`, `toJSON(attrs) startsWith "{"`, `string(attrs) startsWith "map[a:"`,
		`date("02 Jan 26 15:04 CET") == date("02 Jan 26 15:04 UTC")`, `date(timezone("Asia/Tokyo"), "2026-01-02").Hour() == 0`,
		`let tz = timezone("Asia/Tokyo"); date(tz, "2026-01-02") < date("2026-01-02")`, `date("2026-01-02", "2006-01-02") < time`,
	} {
		set, err := compileWhenRule(when)
		if err != nil {
			t.Errorf("%s: %v", when, err)
			continue
		}
		for range 5 {
			if len(set.NewMatcher().Match(manyAttrs(), 1790000000000000)) != 1 {
				t.Errorf("%s: does not hold", when)
				break
			}
		}
	}
}

// Each builtin, over what events have, says the same each time that it is asked.
func TestWhenIsAFunctionOfTheEvent(t *testing.T) {
	args := []string{
		"attrs", "attrs.a", "attrs.s", "attrs.none", "api", "cost", "time", `["b", "a"]`, "[3, 1.0, 1]", `fromJSON(attrs.json)`, "keys(attrs)", "values(attrs)",
		`{"x": 1, "y": 2}`, `groupBy(["a", "b", "c"], #)`, `countBy(["a"], #)`, `split(attrs.s, ",")`, "sort(keys(attrs))", "1", `"a"`, "#", "time.Hour",
	}
	rapid.Check(t, func(t *rapid.T) {
		arg := rapid.SampledFrom(args)
		name := rapid.SampledFrom(builtin.Names).Draw(t, "builtin")
		call := name + "(" + strings.Join(rapid.SliceOfN(arg, 1, 3).Draw(t, "arguments"), ", ") + ")"
		when := fmt.Sprintf(rapid.SampledFrom([]string{"toJSON(%s) %s", "string(%s) %s", "(%s)[0] %s", "join(%s) %s", "%s %s"}).Draw(t, "around"), call,
			rapid.SampledFrom([]string{`< "m"`, "== nil", "> 1.5", `== "a"`, `contains "a"`}).Draw(t, "compared"))
		set, err := compileWhenRule(when)
		if err != nil {
			return
		}
		want := ""
		for range 12 {
			m := set.NewMatcher()
			got := fmt.Sprint(len(m.Match(manyAttrs(), 1790000000000000)), len(m.Skipped))
			if want == "" {
				want = got
			}
			if got != want {
				t.Fatalf("%s: once %s, then %s", when, want, got)
			}
		}
	})
}

func compileWhenRule(when string) (*Set, error) {
	return Compile("x.yaml", []byte(header+"  rules:\n    - name: r\n      match: {api: \"*\"}\n      when: |\n        "+when+
		"\n      limit: 1\n      per: 1s\n      then: {block: 1s}\n"))
}

// manyAttrs is an event whose attributes have so many orders that no two runs have the same one.
func manyAttrs() *event.Event {
	e := &event.Event{API: "x", UID: "u", Cost: event.One}
	e.Attrs = append(e.Attrs, event.Attr{Name: "json", Value: event.Value{Text: `{"p": 1, "q": 2, "r": "x"}`}})
	for c := 'a'; c <= 'y'; c++ {
		e.Attrs = append(e.Attrs, event.Attr{Name: string(c), Value: event.Value{Kind: event.Number, Text: fmt.Sprint(int(c - 'a' + 1))}})
	}
	e.Attrs['s'-'a'].Value = event.Value{Text: "b,a"}
	return e
}
