package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

const carriedRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: carried}
spec:
  rules:
    - {name: quota, match: {api: x}, limit: LIMIT, per: 1mMORE, then: {block: until-reset}}
    - {name: penalty, match: {api: x}, limit: LIMIT, per: 1mMORE, then: {block: 20s}}
    - {name: values, match: {api: x}, count: {distinct: attrs.d}, limit: LIMIT, per: 1mMORE, then: {block: until-reset}}
`

func carried(t testing.TB, limit int, more string) *Set {
	return compiled(t, strings.NewReplacer("LIMIT", fmt.Sprint(limit), "MORE", more).Replace(carriedRules))
}

// No candidate, of whatever number, changes what the live limit does.
func TestACandidateChangesNothing(t *testing.T) {
	limits, candidates := []int{2, 5, 64, 65, 70}, []int{1, 3, 64, 66, 100}
	sets := map[[2]int]*Set{}
	for _, limit := range limits {
		sets[[2]int{limit, 0}] = carried(t, limit, "")
		for _, candidate := range candidates {
			sets[[2]int{limit, candidate}] = carried(t, limit, fmt.Sprintf(", candidate: {limit: %d}", candidate))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom(limits).Draw(t, "limit")
		without, with := sets[[2]int{limit, 0}], sets[[2]int{limit, rapid.SampledFrom(candidates).Draw(t, "candidate")}]
		a, b := newKeyOf(without), newKeyOf(with)
		now := noon
		for range rapid.IntRange(1, 120).Draw(t, "events") {
			now += event.Micros(rapid.SampledFrom([]int{0, 1, 200_000, 900_000, 3_000_000, 30_000_000}).Draw(t, "step"))
			e := carriedEvent(t, now)
			var live []verdict.Verdict
			for _, v := range b.step(e) {
				if !strings.HasSuffix(v.Rule, candidateSuffix) {
					live = append(live, v)
				}
			}
			if diff := cmp.Diff(sentences(a.step(e)), sentences(live)); diff != "" {
				t.Fatalf("at %v (- without, + with a candidate)\n%s", e.Time, diff)
			}
		}
	})
}

// Whatever sets follow each other, each state is one of the set that it comes to, and no count starts anew.
func TestCountsGoOnThroughChanges(t *testing.T) {
	var sets []*Set
	for _, limit := range []int{2, 50, 80} {
		for _, more := range []string{"", ", candidate: {limit: 3}", ", candidate: {limit: 90}", ", tiers: [{when: cost > 2, limit: 100}]"} {
			sets = append(sets, carried(t, limit, more))
		}
	}
	sets = append(sets, compiled(t, strings.NewReplacer("LIMIT", "60", "match: {api: x}, limit", "match: {api: x}, refunds: true, limit", "MORE", "").Replace(carriedRules)))
	rapid.Check(t, func(t *rapid.T) {
		k := newKeyOf(sets[0])
		now := noon
		n := rapid.IntRange(1, 60).Draw(t, "events")
		for i := range n {
			now += event.Micros(rapid.IntRange(0, 900_000).Draw(t, "step")) // a minute has them all
			k.step(&event.Event{ID: fmt.Sprint(i), API: "x", UID: "u", Time: now, Cost: event.One, Attrs: []event.Attr{{Name: "d", Value: event.Value{Text: fmt.Sprint(i)}}}})
			if rapid.Bool().Draw(t, "change") {
				k.change(rapid.SampledFrom(sets).Draw(t, "set"), now)
			}
			if err := CheckState(k.state); err != nil {
				t.Fatal(err)
			}
			if err := k.set.Check(k.state); err != nil {
				t.Fatal(err)
			}
			for _, e := range k.set.Explain(k.state, []byte("uid=u"), now, "") {
				if want := event.Decimal(i+1) * event.One; e.Count != want && !strings.HasSuffix(e.Rule, candidateSuffix) {
					t.Fatalf("%s counts %v, want %v", e.Rule, e.Count, want)
				}
			}
		}
	})
}

func carriedEvent(t *rapid.T, now event.Micros) *event.Event {
	at := now - event.Micros(rapid.SampledFrom([]int{0, 0, 0, 700_000, 50_000_000}).Draw(t, "late"))
	cost := event.Decimal(rapid.SampledFrom([]int{1, 1, 1, 0, 4, 30}).Draw(t, "cost")) * event.One
	value := fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "value"))
	return &event.Event{API: "x", UID: "u", Time: at, Cost: cost, Attrs: []event.Attr{{Name: "d", Value: event.Value{Text: value}}}}
}

// keyOf is one key under sets that follow each other.
type keyOf struct {
	set     *Set
	matcher *Matcher
	stepper *Stepper
	state   []byte
}

func newKeyOf(set *Set) *keyOf {
	return &keyOf{set: set, matcher: set.NewMatcher(), stepper: set.NewStepper()}
}

func (k *keyOf) step(e *event.Event) []verdict.Verdict {
	var changes []verdict.Verdict
	for _, w := range k.matcher.Match(e, e.Time) {
		next, res := k.stepper.Step(nil, k.state, Input{Key: w.Key, Hits: w.Hits, At: e.Time, ID: e.ID})
		k.state, changes = next, res.Changes
	}
	return changes
}

func (k *keyOf) change(to *Set, at event.Micros) {
	p := to.NewStepper()
	p.After(k.set)
	k.state, _ = p.Rejudge(nil, k.state, []byte("uid=u"), at)
	k.set, k.matcher, k.stepper = to, to.NewMatcher(), p
}
