package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// oneRule compiles a rule with some fields, in a set that is lenient for 10 minutes.
func oneRule(fields string) (*Rule, error) {
	set, err := Compile("x.yaml", []byte(header+"  max_lateness: 10m\n  rules:\n    - {name: r, match: {api: x}, "+fields+"}\n"))
	if err != nil {
		return nil, err
	}
	return set.All()[0], nil
}

// What may just be, and what may not any more.
func TestBoundsOfStrictRulesAndOfThoseOfAnInstance(t *testing.T) {
	for _, test := range []struct{ good, bad string }{
		{"limit: 5, per: 1m, strict: {hold: 10m}", "limit: 5, per: 1m, strict: {hold: 10m1ms}"},
		{"limit: 5, window: in-flight, strict: {hold: 10m}", "limit: 5, window: in-flight, strict: {hold: 10m1ms}"},
		{"limit: 5, per: 1m, strict: {hold: 1s}", "limit: 5, per: 1m, strict: {hold: 999ms}"},
		{"limit: 5, per: 1m, strict: {hold: 7s, ahead: 7s}", "limit: 5, per: 1m, strict: {hold: 7s, ahead: 7s1ms}"},
		{"limit: 5, per: 1m, strict: {ahead: 30s}", "limit: 5, per: 1m, strict: {ahead: 30s1ms}"},
		{"limit: 9007199254.740992, count: {sum: cost}, per: 1m, strict: true", "limit: 9007199254.740993, count: {sum: cost}, per: 1m, strict: true"},
		{"limit: 5, per: 1m, strict: true, tiers: [{when: cost > 1, limit: 9007199254}]", "limit: 5, per: 1m, strict: true, tiers: [{when: cost > 1, limit: 9007199255}]"},
		{"limit: 5, per: 1m, window: bucket, burst: 9007199254, strict: true", "limit: 5, per: 1m, window: bucket, burst: 9007199255, strict: true"},
		{"limit: 5, per: 1m, scope: instance, keys: 1", "limit: 5, per: 1m, scope: instance, keys: 0.5"},
		{"limit: 5, per: 1m, scope: instance, keys: 1M", "limit: 5, per: 1m, scope: instance, keys: 1000001"},
		{"limit: 5, per: 1m, window: bucket, scope: instance, warm_up: {time: 1ms, from: 99.9999%}", "limit: 5, per: 1m, window: bucket, scope: instance, warm_up: {time: 0s, from: 99.9999%}"},
		{"limit: 5, per: 1m, window: bucket, strict: true, debt: 0.5", "limit: 5, per: 1m, window: bucket, scope: instance, debt: 0.5"},
	} {
		if _, err := oneRule(test.good); err != nil {
			t.Errorf("%s: %v", test.good, err)
		}
		if r, err := oneRule(test.bad); err == nil {
			t.Errorf("%s compiles to %+v", test.bad, r)
		}
	}
}

func TestWhatStrictRulesAndThoseOfAnInstanceComeTo(t *testing.T) {
	for fields, want := range map[string]string{
		"limit: 5, per: 1m, strict: true":                                                      "scope 0 block 0 {30s 0 0s}",
		"limit: 5, per: 1m, strict: {lost: return, ahead: 2s}, action: throttle":               "scope 0 throttle 0 {30s 1 2s}",
		"limit: 5, window: in-flight, strict: true, action: challenge":                         "scope 0 challenge 0 {30s 1 0s} in flight",
		"limit: 5, window: in-flight, strict: {hold: 5m, lost: return}":                        "scope 0 block 0 {5m0s 1 0s} in flight",
		"limit: 5, per: 1m, strict: false, then: {block: 1m}":                                  "scope 0 block 0 not strict",
		"limit: 5, per: 1m, scope: all, then: {block: 1m, action: challenge}":                  "scope 0 block 0 not strict",
		"limit: 5, per: 1m, scope: instance":                                                   "scope 1 block 10000 not strict",
		"limit: 5, window: in-flight, scope: instance, keys: 7, mode: shadow":                  "scope 1 block 7 not strict in flight",
		"limit: 5, per: 1m, window: bucket, scope: instance, warm_up: {time: 9s, from: 12.5%}": "scope 1 block 10000 not strict warm up 9s from 0.125",
	} {
		r, err := oneRule(fields)
		if err != nil {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		got := fmt.Sprintf("scope %d %v %d", r.Scope, r.Action, r.MaxKeys)
		if s := r.Strict; s != nil {
			got += fmt.Sprintf(" {%v %d %v}", s.Hold.Duration(), s.Lost, s.Ahead.Duration())
		} else {
			got += " not strict"
		}
		l := r.Limits[0]
		if l.InFlight {
			got += " in flight"
		}
		if l.WarmUp != (WarmUp{}) {
			got += fmt.Sprintf(" warm up %v from %v", l.WarmUp.Time.Duration(), l.WarmUp.From)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", fields, got, want)
		}
		// At a process' own clock nothing is late: what has ended is not held.
		if late := l.Window.Lateness; !l.InFlight && (late == 0) != (r.Scope == ScopeInstance) {
			t.Errorf("%s: ended windows are held for %v", fields, late.Duration())
		}
	}
}

// Where events may not be late for long, no action may take long, either.
func TestHoldIsAtMostTheLateness(t *testing.T) {
	set := compiled(t, header+"  max_lateness: 5s\n  rules: [{name: r, match: {api: x}, limit: 5, per: 1m, strict: true}]\n")
	if hold := set.Rules[0].Strict.Hold; hold != 5*event.Second {
		t.Errorf("hold is %v", hold.Duration())
	}
}

// Defaults of the set are for rules that have verdicts.
func TestDefaultsOfRulesThatDecideBeforehand(t *testing.T) {
	set := compiled(t, header+`  defaults: {key: ip, mode: shadow, then: {block: 1m}, window: tumbling}
  rules:
    - {name: a, match: {api: x}, limit: 5, per: 1m, strict: true}
    - {name: b, match: {api: x}, limit: 5, window: in-flight, strict: true}
    - {name: c, match: {api: x}, limit: 5, per: 1m, scope: instance, mode: enforce}
    - {name: d, match: {api: x}, limit: 5, per: 1m, strict: true, mode: enforce}
`)
	var got string
	for _, r := range set.All() {
		got += fmt.Sprint(r.Name, " ", r.Shape.Dims, " ", r.Mode == verdict.Shadow, " ", r.Silent(), "; ")
	}
	if want := "a [ip] true false; b [ip] true true; c [ip] false true; d [ip] false false; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if strict := set.Strict(); len(strict) != 1 || strict[0].Name != "d" {
		t.Errorf("%d rules ask for permits", len(strict))
	}
}

// A rule with a long hold is the outage of the others when Redis loses its memory: check says so.
func TestALongHoldBesideShorterOnesIsWarnedOf(t *testing.T) {
	for _, tt := range []struct {
		one, other string
		warns      bool
	}{
		{"{hold: 150s}", "true", true},
		{"{hold: 150s}", "{hold: 2m}", true},
		{"{hold: 150s}", "{hold: 150s}", false}, // none waits for another
		{"{hold: 1m}", "true", false},
		{"{hold: 150s}", "false", false}, // there is no other
	} {
		set := compileRules(t, fmt.Sprintf("    - {name: exports, match: {api: x}, limit: 5, per: 1h, strict: %s, then: {block: until-reset}}\n"+
			"    - {name: sms, match: {api: y}, limit: 5, per: 1h, strict: %s, then: {block: until-reset}}\n", tt.one, tt.other))
		if got := strings.Contains(fmt.Sprint(set.Warnings), "this rule denies for its hold, 2m30s; right after a reload so does sms"); got != tt.warns {
			t.Errorf("%s beside %s: %v", tt.one, tt.other, set.Warnings)
		}
	}
}
