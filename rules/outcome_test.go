package rules

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// outcomeSpecs pair outcomes in rules with those of testedOutcomes that they mean.
var outcomeSpecs = map[string][]string{
	"":                            {"success", "failure", "denied", "", "other"},
	", outcome: success":          {"success"},
	", outcome: [denied, '']":     {"denied", ""},
	", outcome: limited":          {"limited"},
	", outcome: [limited, other]": {"limited", "other"},
	`, outcome: "*"`:              {"success", "failure", "denied", "limited", "", "other"},
	`, outcome: [success, "*"]`:   {"success", "failure", "denied", "limited", "", "other"},
}

var testedOutcomes = outcomeSpecs[`, outcome: "*"`]

// What a limit denied counts, and resets, only where it is named: in rules of all kinds of match.
func TestWhatALimitDeniedCountsWhereItIsNamed(t *testing.T) {
	const apart = "match: {api: y}, "
	for spec, means := range outcomeSpecs {
		set := compileRules(t, ruleYAML("plain", "match: {api: x"+spec+"}")+
			ruleYAML("pattern", `match: {api: "*"`+spec+"}, key: ip")+
			ruleYAML("weights", "match: {api: {x: 2, y: 3}"+spec+"}")+
			ruleYAML("attrs", "match: {api: x, attrs.n: 1"+spec+"}")+
			ruleYAML("when", "match: {api: x"+spec+"}, when: attrs.n == 1")+
			ruleYAML("resets", apart+"reset_on: {api: x"+spec+"}")+
			ruleYAML("resets-attrs", apart+"reset_on: {api: x, attrs.n: 1"+spec+"}"))
		requests := NewRequests(compileRules(t, ruleYAML("strict", "match: {api: x"+spec+"}, strict: true")).Strict())
		m := set.NewMatcher()
		for _, outcome := range testedOutcomes {
			e := &event.Event{API: "x", UID: "u", IP: netip.MustParseAddr("192.0.2.1"), Outcome: outcome, Cost: event.One, Attrs: []event.Attr{{Name: "n", Value: event.NumberValue(event.One)}}}
			var got, want []string
			for _, w := range m.Match(e, 0) {
				for _, h := range w.Hits {
					if h.Reset != strings.HasPrefix(h.Limit.Name, "resets") {
						t.Errorf("%s of %q: reset is %v", h.Limit.Name, outcome, h.Reset)
					}
					got = append(got, h.Limit.Name)
				}
			}
			if slices.Contains(means, outcome) {
				want = []string{"plain", "weights", "attrs", "when", "resets", "resets-attrs", "pattern"}
			}
			if !slices.Equal(got, want) {
				t.Errorf("match: {api: x%s} and the outcome %q: %v, want %v", spec, outcome, got, want)
			}
			if wants := requests.Wants(e, 0); outcome != "" && len(wants) > 0 != slices.Contains(means, outcome) && spec != "" {
				t.Errorf("strict, %s and the outcome %q: %v", spec, outcome, wants)
			}
		}
		e := &event.Event{API: "x", UID: "u", Cost: event.One} // before the action
		if wants := requests.Wants(e, 0); len(wants) != 1 {
			t.Errorf("strict, %s, and an outcome that is not known yet: %v", spec, wants)
		}
		if strict, want := compileRules(t, ruleYAML("strict", "match: {api: x"+spec+"}, strict: true")).Rules[0], slices.Contains(means, "limited"); strict.CountsLimited() != want {
			t.Errorf("%s: CountsLimited is %v", spec, !want)
		}
	}
}

// A reset that takes all that match takes empties everything: check says so of each pair.
func TestAResetThatTakesAllThatMatchTakes(t *testing.T) {
	for match, matched := range outcomeSpecs {
		for reset, taken := range outcomeSpecs {
			want := !slices.ContainsFunc(matched, func(o string) bool { return !slices.Contains(taken, o) })
			if len(taken) == 2 && strings.Contains(match, `"*"`) || match == "" && len(taken) < 5 {
				want = false // there are more outcomes than those of the test
			}
			set := compileRules(t, ruleYAML("r", "match: {api: x"+match+"}, reset_on: {api: x"+reset+"}"))
			if got := set.Rules[0].alwaysResets(); got != want {
				t.Errorf("match: {api: x%s}, reset_on: {api: x%s}: %v, want %v", match, reset, got, want)
			}
		}
	}
}

// What looks like a pattern is one text only, and said so.
func TestAnOutcomeIsNoPattern(t *testing.T) {
	set := compileRules(t, ruleYAML("a", `match: {api: x, outcome: [success, "fail*"]}`))
	if len(set.Warnings) != 1 || !strings.Contains(set.Warnings[0].Message, `"fail*" is no pattern`) {
		t.Errorf("%v", set.Warnings)
	}
	if set = compileRules(t, ruleYAML("a", `match: {api: x, outcome: "*"}`)); len(set.Warnings) > 0 {
		t.Errorf("every outcome: %v", set.Warnings)
	}
}
