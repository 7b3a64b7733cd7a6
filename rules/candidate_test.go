package rules

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// What a candidate shows is what its limit would do, where verdicts empty the window, too: there are as
// many of its verdicts, at the same times, as of a live rule with its limit.
func TestACandidateOfARuleThatResetsShowsWhatItsLimitWouldDo(t *testing.T) {
	for _, window := range []string{
		"per: 10m", "per: 10m, window: tumbling", "per: hour, window: calendar", "per: 10m, window: hopping, every: 1m", "gap: 30s, window: session",
		"per: 10m, count: {distinct: attrs.d}", "per: 10m, count: {distinct: attrs.d}, window: tumbling", "per: 10m, count: {distinct: attrs.d}, window: hopping, every: 1m",
		"gap: 30s, count: {distinct: attrs.d}, window: session", "per: 10m, count: {sum: cost}", "per: 10m, reset_on: {api: ok, clear: true}", "per: 10m, refunds: true",
	} {
		for _, limits := range [][2]int{{10, 5}, {5, 10}, {100, 5}, {5, 100}, {100, 70}, {64, 65}} {
			then := "then: {escalate: [1s, 5s], forget: 1m, reset: true}"
			set := compileRules(t, fmt.Sprintf(`
    - {name: tried, match: {api: x}, %s, limit: %d, candidate: {limit: %d}, %s}
    - {name: alone, match: {api: x}, %s, limit: %d, %s}
`, window, limits[0], limits[1], then, window, limits[1], then))
			for seed := range uint64(testrun.Depth(4)) {
				tried, alone := candidateVerdicts(t, set, seed)
				if diff := cmp.Diff(alone, tried); diff != "" {
					t.Fatalf("%s, a candidate of %d beside %d, rand.NewPCG(%d, 1) (- what the limit does):\n%s", window, limits[1], limits[0], seed, diff)
				}
			}
		}
	}
}

// candidateVerdicts are the verdicts of the candidate, and of the rule with its limit, over a timeline
// with some late events, refunds and resets.
func candidateVerdicts(t *testing.T, set *Set, seed uint64) (tried, alone []string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	stepper, matcher := set.NewStepper(), set.NewMatcher()
	now := noon
	var state []byte
	for i := range 600 {
		now += event.Micros(rng.IntN(3)) * event.Second
		e := &event.Event{API: "x", UID: "u", Time: now, Cost: event.One, ID: fmt.Sprint("id-", i)}
		e.Attrs = []event.Attr{{Name: "d", Value: event.Value{Text: fmt.Sprint(rng.IntN(300))}}}
		switch rng.IntN(40) {
		case 0:
			e.API = "ok"
		case 1:
			e.Time -= event.Micros(rng.IntN(90)) * event.Second
		case 2:
			e.Cost, e.Refunds = -event.One, fmt.Sprint("id-", i-1-rng.IntN(3))
		case 3:
			now += event.Micros(rng.IntN(400)) * event.Second
		}
		for _, w := range matcher.Match(e, e.Time) {
			next, res := stepper.Step(nil, state, Input{Key: w.Key, Hits: w.Hits, At: e.Time, ID: e.ID})
			state = next
			for _, v := range res.Changes {
				text := fmt.Sprintf("%d: %v %v of %v, since %v, until %v", i, v.State, v.Count, v.Limit, v.Since.Time(), v.Until.Time())
				switch {
				case v.Rule == "alone":
					alone = append(alone, text)
				case strings.HasSuffix(v.Rule, candidateSuffix):
					if tried = append(tried, text); v.Mode != verdict.Shadow {
						t.Fatalf("a candidate's verdict is enforced: %s", text)
					}
				}
			}
		}
	}
	if err := set.Check(state); err != nil {
		t.Fatal(err)
	}
	return tried, alone
}
