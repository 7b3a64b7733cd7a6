package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
)

const escalating = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: guessing, match: {api: x}, limit: 5, per: 1h, window: tumbling, then: {escalate: [1m, 10m, 1h], forget: 7d}}
`

// guesser is one key under a rule that escalates, whose limit changes.
type guesser struct {
	t     *testing.T
	sets  map[int]*Set
	is    int
	state []byte
	says  []string
}

func newGuesser(t *testing.T) *guesser {
	g := &guesser{t: t, sets: map[int]*Set{}, is: 5}
	for _, limit := range []int{1, 2, 3, 5, 9} {
		g.sets[limit] = compiled(t, strings.Replace(escalating, "limit: 5", fmt.Sprintf("limit: %d", limit), 1))
	}
	return g
}

func (g *guesser) told(next []byte, res Result) {
	g.t.Helper()
	if err := CheckState(next); err != nil {
		g.t.Fatal(err)
	}
	g.state = next
	for _, v := range res.Changes {
		g.says = append(g.says, fmt.Sprintf("%v %v for %v", (v.Since-noon).Duration(), v.State, (v.Until-v.Since).Duration()))
	}
}

// events come at times, in minutes.
func (g *guesser) events(minutes ...event.Micros) {
	g.t.Helper()
	for _, m := range minutes {
		set := g.sets[g.is]
		g.told(set.NewStepper().Step(nil, g.state, Input{Key: []byte("uid=42"), At: noon + m*event.Minute, Hits: unitHits(set.Limits[0])}))
	}
}

// limit changes the limit at a time, and a pass judges the key by it, as its owner does: what does not change is not kept.
func (g *guesser) limit(to int, minute event.Micros) {
	g.t.Helper()
	p := g.sets[to].NewStepper()
	p.After(g.sets[g.is])
	g.is = to
	if next, res := p.Rejudge(nil, g.state, []byte("uid=42"), noon+minute*event.Minute); len(res.Changes) > 0 {
		g.told(next, res)
	}
}

// A limit that was a mistake, and is taken back, leaves penalties as long as they were: nobody did anything.
func TestAReloadAndItsRevertClimbNoStep(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(g *guesser)
		want []string
	}{
		{"lowered, reverted, lowered", func(g *guesser) {
			g.events(0, 0, 0, 0)
			g.limit(3, 5)
			g.limit(5, 5)
			g.limit(3, 5)
			g.limit(5, 5)
			g.limit(3, 5)
		}, []string{"5m0s block for 1m0s", "5m0s clear for 0s", "5m0s block for 1m0s", "5m0s clear for 0s", "5m0s block for 1m0s"}},
		{"lowered at the moment at which a penalty ends, and reverted", func(g *guesser) {
			g.events(0, 0, 0, 0, 0, 0)
			g.limit(9, 1)
			g.limit(5, 1)
			g.limit(9, 1)
			g.events(3, 3, 3, 3)
		}, []string{"0s block for 1m0s", "1m0s block for 1m0s", "1m0s clear for 0s", "3m0s block for 10m0s"}},
		{"the last event came when the penalty ended", func(g *guesser) {
			g.events(0, 0, 0, 0, 0, 0)
			g.limit(9, 1)
			g.events(1)
			g.limit(5, 2)
		}, []string{"0s block for 1m0s", "2m0s block for 1m0s"}},
		{"what a mistake let fall is no first one", func(g *guesser) {
			g.events(0, 0, 0, 0)
			g.limit(3, 5)
			g.limit(5, 5)
			g.events(7, 7)
		}, []string{"5m0s block for 1m0s", "5m0s clear for 0s", "7m0s block for 1m0s"}},
		{"lowered again behind the penalty", func(g *guesser) {
			g.events(0, 0, 0, 0)
			g.limit(3, 5)
			g.limit(2, 7)
			g.limit(1, 9)
			g.events(11)
		}, []string{"5m0s block for 1m0s", "7m0s block for 1m0s", "9m0s block for 1m0s", "11m0s block for 10m0s"}},
		{"a mistake behind a penalty that was right", func(g *guesser) {
			g.events(0, 0, 0, 0, 0, 0)
			g.limit(3, 5) // once more for the same
			g.limit(9, 5)
			g.limit(5, 20)
			g.events(30)
		}, []string{"0s block for 1m0s", "5m0s block for 1m0s", "5m0s clear for 0s", "20m0s block for 1m0s", "30m0s block for 10m0s"}},
		{"raised by mistake, and reverted", func(g *guesser) {
			g.events(0, 0, 0, 0, 0, 0, 2)
			g.limit(9, 3)
			g.limit(5, 4)
			g.events(20)
		}, []string{"0s block for 1m0s", "2m0s block for 10m0s", "3m0s clear for 0s", "4m0s block for 10m0s", "20m0s block for 1h0m0s"}},
		{"raised by mistake while events come", func(g *guesser) {
			g.events(0, 0, 0, 0, 0, 0, 2, 3)
			g.limit(9, 4)
			g.events(5)
			g.limit(5, 6)
		}, []string{"0s block for 1m0s", "2m0s block for 10m0s", "4m0s clear for 0s", "6m0s block for 10m0s"}},
		{"what is counted meanwhile climbs", func(g *guesser) {
			g.events(0, 0, 0, 0, 0, 0)
			g.limit(9, 2)
			g.events(3)
			g.limit(5, 4)
		}, []string{"0s block for 1m0s", "4m0s block for 10m0s"}},
		{"forgotten", func(g *guesser) {
			g.events(0, 0, 0, 0, 0, 0)
			g.limit(3, 5)
			g.events(8*24*60, 8*24*60, 8*24*60, 8*24*60)
		}, []string{"0s block for 1m0s", "5m0s block for 1m0s", "192h0m0s block for 1m0s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuesser(t)
			tt.do(g)
			if diff := cmp.Diff(tt.want, g.says); diff != "" {
				t.Errorf("(- want)\n%s", diff)
			}
		})
	}
}

// A penalty that empties its window does so too when the pass lets it fall: else the next event would let another one fall for the
// same counts.
func TestAPassEmptiesTheWindowOfAPenaltyThatResets(t *testing.T) {
	text := strings.Replace(beforeChange, "then: {block: 1m}", "then: {block: 1m, reset: true}", 1)
	text = strings.Replace(text, "name: kept, match: {api: x}, limit: 3,", "name: kept, match: {api: x}, limit: 20,", 1)
	old, set := compiled(t, text), compiled(t, strings.Replace(text, "limit: 20,", "limit: 4,", 1))
	state := counted6(t, old)
	p := set.NewStepper()
	p.After(old)
	state, res := p.Rejudge(nil, state, []byte("uid=42"), noon+5*event.Minute)
	if want := []string{"kept block enforce: 6 of 4, 5m0s to 6m0s"}; !cmp.Equal(want, sentences(res.Changes)) {
		t.Fatalf("%q", sentences(res.Changes))
	}
	state, res = p.Step(nil, state, Input{Key: []byte("uid=42"), At: noon + 10*event.Minute, Hits: unitHits(set.Limits[2])})
	if e := set.Explain(state, []byte("uid=42"), noon+10*event.Minute, "")[2]; len(res.Changes) > 0 || e.Count != event.One {
		t.Errorf("the next event: %q, and the count is %v", sentences(res.Changes), e.Count)
	}
}

// A candidate that counts by itself begins with what the live limit has counted, and is judged by that at once, as one is that shares
// the counts.
func TestACandidateOfAnotherKindIsJudgedAtOnce(t *testing.T) {
	key := []byte("uid=42")
	for _, tt := range []struct {
		name     string
		events   int
		from, to string // limit, candidate and then
		want     []string
	}{
		{"it is new, and over", 30, "100, then: {block: until-reset}", "100, candidate: {limit: 20}, then: {block: until-reset}",
			[]string{"tried/candidate block shadow: 30 of 20, 5s to 1m0.000029s"}},
		{"it is new, and not over", 19, "100, then: {block: until-reset}", "100, candidate: {limit: 20}, then: {block: until-reset}", nil},
		{"it is new, and a penalty", 30, "100, then: {block: 10s}", "100, candidate: {limit: 20}, then: {block: 10s}",
			[]string{"tried/candidate block shadow: 30 of 20, 5s to 15s"}},
		{"it shared the counts", 30, "60, candidate: {limit: 20}, then: {block: until-reset}", "100, candidate: {limit: 20}, then: {block: until-reset}",
			[]string{"tried/candidate clear shadow: 30 of 100, 5s to 5s", "tried/candidate block shadow: 30 of 20, 5s to 1m0.000029s"}},
		{"it shares the counts now", 70, "90, candidate: {limit: 20}, then: {block: until-reset}", "90, candidate: {limit: 68}, then: {block: until-reset}",
			[]string{"tried/candidate clear shadow: 21 of 20, 5s to 5s", "tried/candidate block shadow: 70 of 68, 5s to 1m1s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from, to := triedSet(t, tt.from), triedSet(t, tt.to)
			k := newKeyOf(from)
			for i := range event.Micros(tt.events) {
				k.step(&event.Event{API: "x", UID: "42", Time: noon + i, Cost: event.One})
			}
			p := to.NewStepper()
			p.After(from)
			next, res := p.Rejudge(nil, k.state, key, noon+5*event.Second)
			if diff := cmp.Diff(tt.want, sentences(res.Changes)); diff != "" {
				t.Errorf("(- want)\n%s", diff)
			}
			if err := CheckState(next); err != nil {
				t.Fatal(err)
			}
			if _, again := p.Rejudge(nil, next, key, noon+6*event.Second); len(again.Changes) > 0 {
				t.Errorf("once more: %q", sentences(again.Changes))
			}
		})
	}
}

func triedSet(t *testing.T, limit string) *Set {
	t.Helper()
	return compiled(t, `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: tried}
spec:
  rules:
    - {name: tried, match: {api: x}, per: 1m, limit: `+limit+`}
`)
}

// A rule that was away for a while comes back to what it has counted of keys that had no event meanwhile. Whoever is over a quota is
// blocked then; a penalty may have been served.
func TestARuleThatComesBackIsJudged(t *testing.T) {
	old, set := compiled(t, beforeChange), compiled(t, strings.ReplaceAll(beforeChange, "limit: 50, candidate: {limit: 5}", "limit: 6"))
	state := counted6(t, old)
	away := old.Judged()
	delete(away, set.Limits[2].Hash) // kept
	delete(away, set.Limits[4].Hash) // tried
	none := set.Judged()
	none[set.Limits[2].Hash], none[set.Limits[4].Hash] = JudgedByNone, JudgedByNone
	for name, was := range map[string]Judged{"unknown": away, "known to be new": none} {
		p := set.NewStepper()
		p.AfterJudged(was, false)
		_, res := p.Rejudge(nil, state, []byte("uid=42"), noon+5*event.Minute)
		want := []string{"tried block enforce: 6 of 6, 5m0s to 1h0m0s", "tried/candidate clear shadow: 6 of 6, 5m0s to 5m0s"}
		if diff := cmp.Diff(want, sentences(res.Changes)); diff != "" {
			t.Errorf("%s (- want)\n%s", name, diff)
		}
	}
}

// A step is kept until forget has passed since the last verdict's end, and not at that moment.
func TestAStepIsForgottenAtItsMoment(t *testing.T) {
	set := compiled(t, strings.Replace(escalating, "forget: 7d", "forget: 2h", 1))
	for after, want := range map[event.Micros]event.Micros{2*event.Hour - 1: 10 * event.Minute, 2 * event.Hour: event.Minute} {
		p, key := set.NewStepper(), []byte("uid=42")
		over := []Hit{{Limit: set.Limits[0], Amount: 6 * event.One}}
		state, res := p.Step(nil, nil, Input{Key: key, At: noon, Hits: over})
		at := res.Changes[0].Until + after
		_, res = p.Step(nil, state, Input{Key: key, At: at, Hits: over})
		if len(res.Changes) != 1 || res.Changes[0].Until-at != want {
			t.Errorf("after %v: %q, want a block of %v", after.Duration(), sentences(res.Changes), want.Duration())
		}
	}
}

// A pass that issues a penalty once the steps are forgotten issues a first one: the next is a second.
func TestAPassThatIssuesAFirstStepIsCounted(t *testing.T) {
	rules := strings.NewReplacer("per: 1h", "per: 1d", "forget: 7d", "forget: 1h").Replace(escalating)
	strict, lax := compiled(t, rules), compiled(t, strings.Replace(rules, "limit: 5", "limit: 9", 1))
	key := []byte("uid=42")
	hits := func(set *Set, n event.Decimal) []Hit { return []Hit{{Limit: set.Limits[0], Amount: n * event.One}} }
	state, _ := strict.NewStepper().Step(nil, nil, Input{Key: key, At: noon, Hits: hits(strict, 6)})
	p := strict.NewStepper()
	p.After(lax)
	state, res := p.Rejudge(nil, state, key, noon+2*event.Hour)
	if len(res.Changes) != 1 || res.Changes[0].Until-res.Changes[0].Since != event.Minute {
		t.Fatalf("%q, want a block of 1m", sentences(res.Changes))
	}
	_, res = p.Step(nil, state, Input{Key: key, At: noon + 2*event.Hour + 5*event.Minute, Hits: hits(strict, 1)})
	if len(res.Changes) != 1 || res.Changes[0].Until-res.Changes[0].Since != 10*event.Minute {
		t.Errorf("%q, want a block of 10m", sentences(res.Changes))
	}
}
