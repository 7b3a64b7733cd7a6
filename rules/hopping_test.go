package rules

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// hoppingRules are the same rules with windows that are written in two ways.
const hoppingRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: hops}
spec:
  max_lateness: 30s
  rules:
    - {name: quota, match: {api: x}, limit: 4, per: 12s, WINDOW, candidate: {limit: 3}, warn: [50%, 90%], tiers: [{when: 'attrs.plan == "pro"', limit: 6}, {when: 'attrs.plan == "own"', unlimited: true}], then: {block: until-reset}}
    - {name: penalty, match: {api: x}, limit: 4, per: 12s, WINDOW, offset: 5s, then: {block: 7s, extend: true}}
    - {name: growing, match: {api: x}, refunds: true, limit: 3, per: 20s, WINDOW, then: {escalate: [1s, 3s], forget: 10s, reset: true}}
    - {name: returns, match: {api: x}, refunds: true, limit: 5, per: 20s, WINDOW, offset: 3s, then: {block: until-reset}}
    - {name: sum, match: {api: x}, count: {sum: cost}, limit: 7.5, per: 1m, WINDOW, then: {block: until-reset, at: exceeded}}
`

// A window that begins where the one before ends is a tumbling one: same verdicts, same notices.
func TestHoppingByItsLengthGivesTheVerdictsOfTumbling(t *testing.T) {
	tumbling := compiled(t, strings.ReplaceAll(hoppingRules, "WINDOW", "window: tumbling"))
	text := hoppingRules
	for _, per := range []string{"12s", "20s", "1m"} {
		text = strings.ReplaceAll(text, "per: "+per+", WINDOW", "per: "+per+", window: hopping, every: "+per)
	}
	hopping := compiled(t, text)
	seen := map[string]bool{}
	for seed := range uint64(testrun.Depth(80)) {
		r := rand.New(rand.NewPCG(seed, 5))
		a, b := newKeyOf(tumbling), newKeyOf(hopping)
		now := noon
		for i := range 250 {
			e := bookEventAt(r.IntN, &now, i)
			e.UID = "u1"
			want := sentences(a.step(e))
			if diff := cmp.Diff(want, sentences(b.step(e))); diff != "" {
				t.Fatalf("seed %d, event %d, at %v (- tumbling, + hopping)\n%s", seed, i, e.Time.Time(), diff)
			}
			for _, s := range want {
				seen[strings.Join(strings.Fields(s)[:2], " ")] = true
			}
			x, y := tumbling.Explain(a.state, []byte("uid=u1"), now, ""), hopping.Explain(b.state, []byte("uid=u1"), now, "")
			for i := range x {
				x[i].Window, x[i].Frees = y[i].Window, y[i].Frees
			}
			if diff := cmp.Diff(x, y); diff != "" {
				t.Fatalf("seed %d, event %d, at %v (- tumbling, + hopping)\n%s", seed, i, e.Time.Time(), diff)
			}
		}
	}
	for _, want := range []string{"quota block", "quota clear", "quota warn", "quota/candidate block", "penalty block", "growing block", "returns clear", "sum block"} {
		if !seen[want] && (testrun.Deep() || want != "returns clear") { // which is rare
			t.Errorf("no timeline had: %s", want)
		}
	}
}

// A penalty that a late event brought empties what the event counted in, and only that: in ended windows,
// or in these and in the ones that hold the latest time.
func TestAResetEmptiesTheHoppingWindowsThatWereOver(t *testing.T) {
	set := compiled(t, header+`
  rules:
    - {name: r, match: {api: x}, refunds: true, limit: 3, per: 30s, window: hopping, every: 10s, then: {block: 1s, reset: true}}
`)
	for _, tt := range []struct {
		name string
		late event.Micros // when the late event happened; the latest is at 45s
		left event.Decimal
	}{
		{"in ended ones only", 12 * event.Second, 2},
		{"in both", 25 * event.Second, 0},
	} {
		k := newKeyOf(set)
		at := func(after event.Micros) *event.Event {
			return &event.Event{API: "x", UID: "u", Time: noon + after, Cost: event.One}
		}
		k.step(at(11 * event.Second))
		k.step(at(12 * event.Second))
		k.step(at(22 * event.Second))
		k.step(at(45 * event.Second))
		if changes := k.step(at(tt.late)); len(changes) != 1 || changes[0].Count != 4*event.One {
			t.Fatalf("%s: %v", tt.name, sentences(changes))
		}
		e := set.Explain(k.state, []byte("uid=u"), noon+45*event.Second, "")[0]
		if e.Count != tt.left*event.One {
			t.Errorf("%s: %v are left in the windows that hold the latest time, want %v", tt.name, e.Count, tt.left)
		}
	}
}
