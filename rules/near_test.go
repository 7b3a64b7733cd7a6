package rules

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// An event is near a limit if it leaves its key with 80% of it or more, and not above it.
func TestNear(t *testing.T) {
	for _, tt := range []struct {
		about, rule string
		events      int
		each        func(i int, e *event.Event)
		want        string // by event: . or the limits' names
	}{
		{about: "from 80% on, up to the limit", rule: `{name: r, match: {api: x}, limit: 10, per: 1h, then: {block: 1m}}`, events: 12, want: ". . . . . . . r r r . ."},
		{about: "a quota, too", rule: `{name: r, match: {api: x}, limit: 5, per: 1h, window: tumbling, then: {block: until-reset}}`, events: 7, want: ". . . r r . ."},
		{about: "a limit of one", rule: `{name: r, match: {api: x}, limit: 1, per: 1h, then: {block: 1m}}`, events: 2, want: "r ."},
		{about: "of amounts", rule: `{name: r, match: {api: x}, count: {sum: cost}, limit: 1, per: 1h, then: {block: 1m}}`, events: 5,
			each: func(_ int, e *event.Event) { e.Cost = event.One / 4 }, want: ". . . r ."},
		{about: "of devices", rule: `{name: r, match: {api: x}, count: {distinct: attrs.d}, limit: 2, per: 1h, then: {block: 1h}}`, events: 4,
			each: func(i int, e *event.Event) {
				e.Attrs = []event.Attr{{Name: "d", Value: event.Value{Text: strings.Repeat("d", 1+i/2)}}}
			}, want: ". . r ."},
		{about: "by the key's tier", rule: `{name: r, match: {api: x}, limit: 1, per: 1h, tiers: [{when: cost > 0, limit: 5}], then: {block: 1m}}`, events: 6, want: ". . . r r ."},
		{about: "each of stacked limits", rule: `{name: r, match: {api: x}, limits: [{name: a, limit: 2, per: 1h}, {name: b, limit: 4, per: 1d}], then: {block: 1m}}`, events: 5, want: ". r/a . r/b ."},
		{about: "in shadow mode, too", rule: `{name: r, match: {api: x}, limit: 2, per: 1h, mode: shadow, then: {block: 1m}}`, events: 2, want: ". r"},
		{about: "the exempt are near nothing", rule: `{name: r, match: {api: x}, limit: 1, per: 1h, then: {block: 1m}}`, events: 2,
			each: func(_ int, e *event.Event) { e.UID = "vip" }, want: ". ."},
		{about: "a rule that only warns keeps nothing out", rule: `{name: r, match: {api: x}, limit: 1, per: 1h, warn: [50%]}`, events: 2, want: ". ."},
		{about: "a candidate is tried beside its limit", rule: `{name: r, match: {api: x}, limit: 9, per: 1h, candidate: {limit: 1}, then: {block: 1m}}`, events: 2, want: ". ."},
		{about: "what adds nothing is near nothing", rule: `{name: r, match: {api: x}, limit: 1, per: 1h, then: {block: 1m}}`, events: 2,
			each: func(i int, e *event.Event) { e.Cost = event.Decimal(1-i) * event.One }, want: "r ."},
	} {
		t.Run(tt.about, func(t *testing.T) {
			set := compiled(t, aboveRules+tt.rule)
			matcher, stepper := set.NewMatcher(), set.NewStepper()
			var state []byte
			var got []string
			for i := range tt.events {
				e := &event.Event{API: "x", UID: "u", Time: noon + event.Micros(i), Cost: event.One}
				if tt.each != nil {
					tt.each(i, e)
				}
				works := matcher.Match(e, e.Time)
				state, _ = stepper.Step(nil, state, Input{Key: works[0].Key, Hits: works[0].Hits, At: e.Time})
				got = append(got, saidNear(stepper.Near()))
			}
			if said := strings.Join(got, " "); said != tt.want {
				t.Errorf("near are %s, want %s", said, tt.want)
			}
		})
	}
}

func saidNear(all []*Limit) string {
	if len(all) == 0 {
		return "."
	}
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	return strings.Join(names, ",")
}

// Near says the same as Explain of the key's new state, on the short way of a step as on the long one; and Counts
// says it, too.
func TestNearIsWhatExplainSays(t *testing.T) {
	seed := testrun.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	set := compiled(t, aboveRules+`{name: plain, match: {api: x}, limit: 20, per: 1h, then: {block: 1m}}
    - {name: summed, match: {api: x}, count: {sum: cost}, limit: 33.3, per: 10m, window: tumbling, then: {block: until-reset}}
    - {name: warned, match: {api: x}, limit: 15, per: 1h, warn: [50%], then: {block: 1m}}
`)
	matcher, stepper := set.NewMatcher(), set.NewStepper()
	var state []byte
	found := 0
	for at := noon; at < noon+2*event.Hour; at += event.Micros(r.IntN(int(event.Minute))) {
		e := &event.Event{API: "x", UID: "u", Time: at, Cost: event.Decimal(1+r.IntN(5e6)) + event.One}
		works := matcher.Match(e, e.Time)
		state, _ = stepper.Step(nil, state, Input{Key: works[0].Key, Hits: works[0].Hits, At: e.Time})
		near := map[string]bool{}
		for _, l := range stepper.Near() {
			near[l.Name] = true
		}
		counts := map[string][2]event.Decimal{}
		err := NewCounter(set, set.Limits).Counts(state, works[0].Key, at, func(i int, count, limit event.Decimal) {
			counts[set.Limits[i].Name] = [2]event.Decimal{count, limit}
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range set.Explain(state, works[0].Key, at, "") {
			want := x.Count*100 >= x.Limit*80 && x.Count <= x.Limit
			if near[x.Rule] != want {
				t.Fatalf("%s has %s of %s, and near is %v", x.Rule, x.Count, x.Limit, near[x.Rule])
			}
			if c := counts[x.Rule]; c != [2]event.Decimal{x.Count, x.Limit} {
				t.Fatalf("%s has %s of %s, and Counts says %v", x.Rule, x.Count, x.Limit, c)
			}
			if want {
				found++
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d were near", found)
	}
}
