package index

import (
	"reflect"
	"testing"
	"unsafe"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// What is worked out once says what a verdict says.
func TestCoversAsVerdictsDo(t *testing.T) {
	for _, apis := range [][]string{
		{"*"}, {"a.*"}, {"a"}, {"a.b", "c.*"}, {"a.*", "c.*"}, {"a.*.c"}, {"*.c", "d"}, {"a.*", "a.b.*"}, {"a.b.*", "a.*"}, {"a.b*", "*"}, {},
		{"a.long-name.*"}, {"abcdefg.*"}, {"abcdef.*"},
	} {
		v := verdict.Verdict{APIs: apis}
		c := newClass(0, 0, &v, "")
		for _, api := range []string{"a", "a.b", "a.b.c", "a.x.c", "c", "c.d", "d", "x.c", "", "a.b.long-name", "c.long-name", "long.name.c",
			"a.long-name.b", "a.long-names", "abcdefg.h", "abcdefg", "abcdefgh.i", "abcdef.g", "abcdeg.h"} {
			if got, want := c.Covers(api), v.Covers(api); got != want || c.CoversSurely(api) && !want {
				t.Errorf("%q covers %q: %v, surely %v, want %v", apis, api, got, c.CoversSurely(api), want)
			}
		}
	}
}

// A prefix of up to eight bytes, as most have, is decided without a call.
func TestCoversSurely(t *testing.T) {
	for pattern, api := range map[string]string{"*": "order.create", "order.*": "order.create", "abcdef.*": "abcdef.g", "abcdefg.*": "abcdefg.h"} {
		if c := newClass(0, 0, &verdict.Verdict{APIs: []string{pattern}}, ""); !c.CoversSurely(api) {
			t.Errorf("%s does not surely cover %s", pattern, api)
		}
	}
}

// Verdicts that differ in one thing that classes have are of two classes: else one would be read
// as the other.
func TestVerdictsOfTwoClasses(t *testing.T) {
	first := block("r", "uid=1", nil)
	for what, change := range map[string]func(*verdict.Verdict){
		"rule":   func(v *verdict.Verdict) { v.Rule = "s" },
		"public": func(v *verdict.Verdict) { v.Public = "p" },
		"state":  func(v *verdict.Verdict) { v.State = verdict.Warn },
		"mode":   func(v *verdict.Verdict) { v.Mode = verdict.Shadow },
		"action": func(v *verdict.Verdict) { v.Action = verdict.ActThrottle },
		"apis":   func(v *verdict.Verdict) { v.APIs = []string{"a"} },
		"limit":  func(v *verdict.Verdict) { v.Limit += event.One },
		"per":    func(v *verdict.Verdict) { v.Per += event.Second },
		"step":   func(v *verdict.Verdict) { v.Step = "x2" },
	} {
		other := block("r", "uid=2", change)
		x := newIndex(false)
		x.Apply(0, []verdict.Verdict{first, other})
		for _, want := range []verdict.Verdict{first, other} {
			r, found := x.User(want.Key[0].Value)
			if !found || !reflect.DeepEqual(*r.Verdicts()[0], want) {
				t.Errorf("two that differ in %s: %+v is not found as it was put", what, want)
			}
		}
	}
}

// A class outlives the verdicts that it was made for, and would keep all of a snapshot in memory.
func TestAClassKeepsNothingOfAVerdict(t *testing.T) {
	v := verdict.Verdict{Rule: "rule", Public: "public", Step: "step", APIs: []string{"order.*"}}
	c := newClass(0, 0, &v, "").Verdict
	for _, both := range [][2]string{{c.Rule, v.Rule}, {c.Public, v.Public}, {c.Step, v.Step}, {c.APIs[0], v.APIs[0]}} {
		if both[0] != both[1] || unsafe.StringData(both[0]) == unsafe.StringData(both[1]) {
			t.Errorf("%q is %q, or the same memory", both[0], both[1])
		}
	}
}
