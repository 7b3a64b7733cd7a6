package rules

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

const plainRule = "  rules: [{name: a, match: {api: \"*\"}, limit: 1, per: 1h, then: {block: 1h}}]\n"

// Two patterns overlap when some name is one of both: all short names are tried.
func TestOverlapIsThatANameIsOneOfBoth(t *testing.T) {
	words := func(letters string, longest int) (out []string) {
		from := []string{""}
		for range longest {
			var next []string
			for _, w := range from {
				for _, l := range letters {
					next = append(next, w+string(l))
				}
			}
			out, from = append(out, next...), next
		}
		return out
	}
	names := append(words("ab.", 7), "")
	patterns := words("ab.*", 4)
	patterns = slices.DeleteFunc(patterns, func(p string) bool { return strings.Contains(p, "**") })
	matched := make([]map[int]bool, len(patterns))
	for i, p := range patterns {
		matched[i] = map[int]bool{}
		for j, name := range names {
			if verdict.MatchAPI(p, name) {
				matched[i][j] = true
			}
		}
	}
	for i, a := range patterns {
		for j := i; j < len(patterns); j++ {
			want := false
			for name := range matched[i] {
				if want = matched[j][name]; want {
					break
				}
			}
			if b := patterns[j]; overlap(a, b) != want || overlap(b, a) != want {
				t.Fatalf("%s and %s: %v and %v, want %v", a, b, overlap(a, b), overlap(b, a), want)
			}
		}
	}
}

// drawnVocabulary is a model of a vocabulary: the declarations as they are written.
type drawnVocabulary struct {
	apis  []string
	types map[string]string
	lists map[string][]any
}

func drawVocabulary(rng *rand.Rand) (v drawnVocabulary, text string) {
	if rng.IntN(4) > 0 {
		for _, p := range []string{"order.*", "order.create", "*.get", "login", "a.*.b", "u*"} {
			if rng.IntN(2) == 0 {
				v.apis = append(v.apis, p)
			}
		}
	}
	if v.apis != nil {
		text += fmt.Sprintf("  apis: [%s]\n", `"`+strings.Join(v.apis, `", "`)+`"`)
	}
	if rng.IntN(4) == 0 {
		return v, text
	}
	v.types, v.lists = map[string]string{}, map[string][]any{}
	all := []any{"pro", "free", 1, 2.5, true, false, "7"}
	for _, name := range []string{"a", "b", "c"} {
		switch kind := rng.IntN(6); kind {
		case 0, 1, 2, 3:
			v.types[name] = attrTypes[kind]
		case 4:
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			v.lists[name] = slices.Clone(all[:1+rng.IntN(3)])
		}
	}
	if len(v.types)+len(v.lists) == 0 {
		v.types["z"] = "text"
	}
	text += "  attrs:\n"
	for name, word := range v.types {
		text += "    " + name + ": " + word + "\n"
	}
	for name, list := range v.lists {
		var items []string
		for _, item := range list {
			if s, ok := item.(string); ok {
				item = fmt.Sprintf("%q", s)
			}
			items = append(items, fmt.Sprint(item))
		}
		text += "    " + name + ": [" + strings.Join(items, ", ") + "]\n"
	}
	return v, text
}

// mismatches lists an event's contradictions, the plain way.
func (v *drawnVocabulary) mismatches(e *event.Event) (out []Mismatch) {
	if v.apis != nil && !slices.ContainsFunc(v.apis, func(p string) bool { return verdict.MatchAPI(p, e.API) }) {
		out = append(out, Mismatch{MismatchAPI, e.API})
	}
	for _, a := range e.Attrs {
		kind := map[event.Kind]string{event.String: "text", event.Number: "number", event.Bool: "boolean"}[a.Value.Kind]
		word, typed := v.types[a.Name]
		list, listed := v.lists[a.Name]
		what := ""
		switch {
		case v.types == nil || a.Value.Text == "":
		case !typed && !listed:
			what = MismatchAttr
		case typed && word != "any" && word != kind:
			what = MismatchType
		case listed:
			what = MismatchType
			for _, item := range list {
				if kindOf(item) == kind && what == MismatchType {
					what = MismatchValue
				}
			}
			if what == MismatchValue && slices.ContainsFunc(list, func(item any) bool { return fmt.Sprint(item) == a.Value.Text }) {
				what = ""
			}
		}
		if what != "" {
			out = append(out, Mismatch{what, a.Name})
		}
	}
	return out
}

func kindOf(item any) string {
	switch item.(type) {
	case string:
		return "text"
	case bool:
		return "boolean"
	}
	return "number"
}

// What a check says of an event is what is written in the file, and what the event counts is the same with a
// vocabulary and without.
func TestVocabularyAgainstAModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 1))
	values := []event.Value{
		event.StringValue("pro"), event.StringValue("free"), event.StringValue("7"), event.StringValue("1"), event.StringValue(""), event.StringValue("true"),
		event.NumberValue(event.One), event.NumberValue(7 * event.One), event.NumberValue(5 * event.One / 2), event.BoolValue(true), event.BoolValue(false),
	}
	for range 300 {
		v, text := drawVocabulary(rng)
		set, bare := compiled(t, specHead+text+plainRule), compiled(t, specHead+plainRule)
		if (set.Vocabulary() == nil) != (text == "") {
			t.Fatalf("there is a vocabulary: %v, of\n%s", set.Vocabulary() != nil, text)
		}
		if text == "" {
			continue
		}
		check, match, bareMatch := set.Vocabulary().NewCheck(), set.NewMatcher(), bare.NewMatcher()
		for range 30 {
			e := event.Event{UID: "u", API: []string{"order.create", "order.a.b", "a.get", "login", "a.x.b", "user", "shop", "a.b.get"}[rng.IntN(8)], Cost: event.One, Time: noon}
			for _, name := range []string{"a", "b", "c", "d"} {
				if rng.IntN(3) > 0 {
					e.Attrs = append(e.Attrs, event.Attr{Name: name, Value: values[rng.IntN(len(values))]})
				}
			}
			if got, want := check.Event(nil, &e), v.mismatches(&e); !slices.Equal(got, want) {
				t.Fatalf("%+v contradicts %v, want %v, by\n%s", e, got, want, text)
			}
			if got, want := len(match.Match(&e, noon)), len(bareMatch.Match(&e, noon)); got != want {
				t.Fatalf("%+v is %d works with a vocabulary, %d without", e, got, want)
			}
		}
	}
}

const specHead = "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: shop}\nspec:\n"

// A rule may name what some event can be, and nothing else.
func TestRulesNameWhatEventsCanBe(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 2))
	names := []string{"order.create", "order.a.b", "a.get", "login", "a.x.b", "user", "shop", "*", "order.*", "*.get", "s*", "a.*", "*.b", "log*n"}
	for range 200 {
		v, text := drawVocabulary(rng)
		if v.apis == nil {
			continue
		}
		name := names[rng.IntN(len(names))]
		known := name == "*" || slices.ContainsFunc(v.apis, func(p string) bool { return overlap(p, name) })
		_, err := Compile("shop.yaml", []byte(specHead+text+strings.Replace(plainRule, `"*"`, `"`+name+`"`, 1)))
		if (err == nil) != known {
			t.Fatalf("%s is known: %v; %v\n%s", name, known, err, text)
		}
	}
}

// Names come from callers: they are bounded in number and length, and are text.
func TestMismatchesHaveFewShortNames(t *testing.T) {
	check := compiled(t, specHead+"  apis: login\n  attrs: {plan: text}\n"+plainRule).Vocabulary().NewCheck()
	told := map[Mismatch]bool{}
	for i := range 1000 {
		e := event.Event{API: fmt.Sprintf("order.%d", i), Attrs: []event.Attr{{Name: fmt.Sprintf("%s\xff%d", strings.Repeat("ä", i%40), i), Value: event.BoolValue(true)}}}
		for _, m := range check.Event(nil, &e) {
			told[m] = true
			if len(m.Name) > 64+2 || strings.ToValidUTF8(m.Name, "") != m.Name {
				t.Errorf("the name %q", m.Name)
			}
		}
	}
	if len(told) > 2*(MaxMismatchNames+1) || !told[Mismatch{MismatchAPI, OtherNames}] || !told[Mismatch{MismatchAttr, OtherNames}] || !told[Mismatch{MismatchAPI, "order.99"}] {
		t.Errorf("%d mismatches", len(told))
	}
}

// Each event is checked: one that fits costs no memory, nor does one that does not, once its names are known.
func TestChecksOfEventsAllocateNothing(t *testing.T) {
	check := compiled(t, specHead+"  apis: [login, order.*]\n  attrs: {plan: [free, pro], amount: number}\n"+plainRule).Vocabulary().NewCheck()
	attrs := []event.Attr{{Name: "plan", Value: event.StringValue("pro")}, {Name: "amount", Value: event.NumberValue(event.One)}}
	good := []event.Event{{API: "login", Attrs: attrs}, {API: "order.create", Attrs: attrs}, {API: "order.item.add"}}
	bad := []event.Event{{API: "shop"}, {API: "order.x", Attrs: []event.Attr{{Name: "plan", Value: event.BoolValue(true)}}}}
	var dst []Mismatch
	run := func() {
		dst = dst[:0]
		for i := range good {
			dst = check.Event(dst, &good[i])
		}
		if len(dst) > 0 {
			t.Fatalf("%v", dst)
		}
		for i := range bad {
			dst = check.Event(dst, &bad[i])
		}
	}
	if n := testrun.Allocs(100, run); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A published source with what is refused in files goes on, as with all other strictness.
func TestAPublishedSourceMayContradictItsVocabulary(t *testing.T) {
	src := []byte(specHead + "  apis: order.*\n  attrs: {plan: [free, pro]}\n" +
		"  rules: [{name: a, match: {api: login, attrs.plan: gold}, key: attrs.x, when: 'attrs.plan == 7', count: {sum: attrs.plan}, limit: 1, per: 1h, then: {block: 1h, apis: logout}}]\n")
	_, err := Compile("shop.yaml", src)
	mistakes, _ := errors.AsType[Errors](err)
	set, err := CompilePublished("shop.yaml", src, nil)
	if err != nil || len(mistakes) != 6 || len(set.Outdated) != len(mistakes) {
		t.Fatalf("%d mistakes of a file, then %v\n%v", len(mistakes), err, mistakes)
	}
	e := event.Event{API: "login", Cost: event.One, Attrs: []event.Attr{{Name: "plan", Value: event.StringValue("gold")}, {Name: "x", Value: event.StringValue("1")}}}
	if got := set.NewMatcher().Match(&e, noon); len(got) != 0 {
		t.Errorf("it counts: %v", got)
	}
}

func TestBoundsOfVocabularies(t *testing.T) {
	var apis, attrs, values strings.Builder
	for i := range 10_001 {
		fmt.Fprintf(&apis, "a.n%d, ", i)
		if i <= 1000 {
			fmt.Fprintf(&attrs, "n%d: text, ", i)
			fmt.Fprintf(&values, "n%d, ", i)
		}
	}
	for text, says := range map[string]string{
		"  apis: [" + apis.String() + "]\n":         "there are more than 10000 APIs",
		"  attrs: {" + attrs.String() + "}\n":       "there are more than 1000 attributes",
		"  attrs: {a: [" + values.String() + "]}\n": "a list of values has 1 to 1000 of them, not 1001",
	} {
		_, err := Compile("shop.yaml", []byte(specHead+text+plainRule))
		mistakes, _ := errors.AsType[Errors](err)
		if len(mistakes) != 1 || mistakes[0].Message != says {
			t.Errorf("want %q: %v", says, err)
		}
	}
}
