package rules

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// What is counted is the product of API's weight, outcome's weight and cost; a permit reserves at least what any of
// the outcomes that may come will count.
func TestSentencesWeightsByOutcome(t *testing.T) {
	seed := testrun.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 4))
	for range 200 {
		apis := map[string]int64{"a": 1 + rnd.Int64N(9), "b": 1 + rnd.Int64N(1_000_000)}
		outcomes := map[string]int64{"ok": 1 + rnd.Int64N(9), "bad": 1 + rnd.Int64N(maxOutcomeWeight)}
		other := rnd.Int64N(5) // 0: no other outcome counts
		more := ""
		if other > 0 {
			more = fmt.Sprintf(", %q: %d", everyOutcome, other)
		}
		set := compiled(t, header+fmt.Sprintf(`  rules:
    - {name: r, match: {api: {a: %d, b: %d}, outcome: {ok: %d, bad: %d%s}}, limit: 5G, per: 1h, window: tumbling, strict: true}
`, apis["a"], apis["b"], outcomes["ok"], outcomes["bad"], more))
		matcher, requests := set.NewMatcher(), NewRequests(set.Strict())
		for _, api := range []string{"a", "b"} {
			cost := 1 + rnd.Int64N(3)
			asked := requests.Wants(&event.Event{API: api, UID: "u", Cost: event.One.TimesInt(cost)}, noon)[0].Amount
			for _, outcome := range []string{"ok", "bad", "other", event.OutcomeLimited} {
				weight, named := outcomes[outcome]
				if !named {
					weight = other
				}
				e := &event.Event{API: api, UID: "u", Outcome: outcome, Time: noon, Cost: event.One.TimesInt(cost)}
				var got event.Decimal
				if works := matcher.Match(e, noon); len(works) > 0 {
					got = works[0].Hits[0].Amount
				}
				want := event.One.TimesInt(apis[api] * weight * cost)
				if got != want || got > asked {
					t.Fatalf("%s %s × %d: %v, want %v, and a permit reserves %v", api, outcome, cost, got, want, asked)
				}
				if weight == 0 {
					continue
				}
				e.Time = event.NoTime
				if known := requests.Wants(e, noon); outcome != event.OutcomeLimited && known[0].Amount != want {
					t.Fatalf("%s %s × %d: a permit for a known outcome reserves %v, want %v", api, outcome, cost, known[0].Amount, want)
				}
			}
		}
	}
}
