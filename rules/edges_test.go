package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// Each number that bounds a file is let pass, and the next one is not.
func TestBoundsAreInclusive(t *testing.T) {
	tiers := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("{when: 'attrs.plan == \"p%d\"', limit: 5}", i)
		}
		return ruleYAML("a", "match: {api: x}, tiers: ["+strings.Join(list, ", ")+"]")
	}
	distinct := func(n int) string {
		return fmt.Sprintf("    - {name: a, match: {api: x}, count: {distinct: attrs.device}, limit: %d, per: 1m, then: {block: 5m}}\n", n)
	}
	for name, of := range map[string]struct {
		rules func(n int) string
		most  int
	}{"tiers": {tiers, maxTiers}, "values without an estimate": {distinct, 1024}} {
		compile := func(n int) error {
			_, err := Compile("x.yaml", []byte(header+"  rules:\n"+of.rules(n)))
			return err
		}
		if err := compile(of.most); err != nil {
			t.Errorf("%s: %d: %v", name, of.most, err)
		}
		if compile(of.most+1) == nil {
			t.Errorf("%s: %d are let pass", name, of.most+1)
		}
	}
}

// A mistake names the rule that it is in, and that of a rule without a name none.
func TestAMistakeNamesItsRule(t *testing.T) {
	_, err := Compile("x.yaml", []byte(header+"  rules:\n"+ruleYAML("a", "match: {api: x}, fuse: no")+"    - 7\n"))
	var got []string
	list, _ := errors.AsType[Errors](err)
	for _, e := range list {
		got = append(got, fmt.Sprintf("%d:%s", e.Line, e.Rule))
	}
	if want := "[6:a 7:]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s:\n%v", got, want, err)
	}
}

// More APIs than a Matcher remembers share its slots, and each keeps its own rules.
func TestAPIsThatShareASlotKeepTheirRules(t *testing.T) {
	m := compileRules(t, ruleYAML("a", "match: {api: even.*}")+ruleYAML("b", "match: {api: [odd.*, none]}")).NewMatcher()
	for i := range 4 * apiSlots {
		name := [2]string{"even", "odd"}[i%2]
		e := &event.Event{API: fmt.Sprintf("%s.%d", name, i/2), UID: "1", Cost: event.One}
		if got, want := showWorks(m.Match(e, 0)), "uid=1 "+string("ab"[i%2])+"=1"; got != want {
			t.Fatalf("%s: %q, want %q", e.API, got, want)
		}
	}
}

// The largest state has room for each verdict that a section keeps.
func TestTheLargestStateHasRoomForVerdicts(t *testing.T) {
	once, _ := compileRules(t, ruleYAML("a", "match: {api: x}")).LargestState()
	tried, _ := compileRules(t, ruleYAML("a", "match: {api: x}, candidate: {limit: 5}")).LargestState()
	if tried < once+event.MaxID {
		t.Errorf("%d bytes, and %d with a candidate", once, tried)
	}
}

// One exemption does not end another, and one that is over leaves.
func TestExemptionsOfSeveralRules(t *testing.T) {
	p := compiled(t, severalShapes).NewStepper()
	key := []byte("uid=42")
	var state []byte
	for i, rule := range []string{"a", "b", "c"} {
		at := noon + event.Micros(i)*event.Minute
		state, _ = p.Command(nil, state, key, Command{Kind: CommandExempt, Rule: rule, At: at, Until: noon + event.Micros(2+i*i)*event.Minute})
	}
	p.read(state)
	var got []string
	for _, e := range p.keySection.Exempt {
		got = append(got, string(e.Rule))
	}
	if fmt.Sprint(got) != "[b c]" {
		t.Errorf("exempt from %v, want b and c: that of a ended when c's was given", got)
	}
}

// A block of a rule that is gone is cleared until it ends, and not when it does.
func TestABlockOfAGoneRuleEndsByItself(t *testing.T) {
	set := compileRules(t, ruleYAML("a", "match: {api: x}"))
	key := []byte("uid=42")
	state, res := set.NewStepper().Step(nil, nil, Input{Key: key, At: noon, Hits: []Hit{{Limit: set.Limits[0], Amount: 200 * event.One}}})
	if len(res.Changes) != 1 {
		t.Fatalf("%q", sentences(res.Changes))
	}
	until := res.Changes[0].Until
	for at, want := range map[event.Micros]int{until - 1: 1, until: 0} {
		if _, res := None().NewStepper().Rejudge(nil, state, key, at); len(res.Changes) != want {
			t.Errorf("%v before its end: %q", (until - at).Duration(), sentences(res.Changes))
		}
	}
}

// What no version accepted is not accepted in a published source either.
func TestAPublishedSourceHasNoAPIThatIsNone(t *testing.T) {
	for _, api := range []string{`"a b"`, `"a,b"`, `"a.**"`, `""`} {
		if _, err := CompilePublished("x.yaml", []byte(header+"  rules:\n"+ruleYAML("a", "match: {api: "+api+"}")), nil); err == nil {
			t.Errorf("%s is let pass", api)
		}
	}
}

// A file that is too large is a mistake at its beginning.
func TestAFileThatIsTooLargeIsToldAtItsBeginning(t *testing.T) {
	_, err := Compile("x.yaml", []byte(header+strings.Repeat("#", 1<<20)))
	if err == nil || !strings.HasPrefix(err.Error(), "x.yaml:1:1: ") {
		t.Errorf("%.80v", err)
	}
}

// No part of a state is one: each number, time and text that is cut off is missed.
func TestAStateThatIsCutOffIsNone(t *testing.T) {
	set := compiled(t, bookRules)
	matcher, p := set.NewMatcher(), set.NewStepper()
	var state []byte
	for i := range 30 {
		e := &event.Event{API: "x", UID: "u1", ID: fmt.Sprint(i), Time: noon + event.Micros(i)*event.Second, Cost: event.One}
		e.Attrs = []event.Attr{{Name: "device", Value: event.Value{Text: e.ID}}, {Name: "plan", Value: event.Value{Text: "pro"}}}
		state, _ = p.Step(nil, state, Input{Key: []byte("uid=u1"), Hits: matcher.Match(e, e.Time)[0].Hits, At: e.Time, ID: e.ID})
	}
	k, err := keystate.Read(state)
	if err != nil {
		t.Fatal(err)
	}
	for rest := k.Sections; len(rest) > 0; {
		sec, more, ok := keystate.Cut(rest)
		if !ok {
			t.Fatal("a section is cut off")
		}
		rest, sec.Version = more, k.Version
		extra, window, _ := sec.Parts()
		head := state[:len(state)-len(k.Sections)]
		for n := 1; n < len(extra); n++ {
			cut := keystate.AppendSection(append([]byte(nil), head...), sec.Hash(), extra[:n], window)
			if CheckState(cut) == nil {
				t.Errorf("%x: the first %d bytes of % x are extras", sec.Hash(), n, extra)
			}
		}
	}
}
