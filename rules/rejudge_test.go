package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

const beforeChange = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: quota, match: {api: x}, limit: 5, per: 1h, window: tumbling, then: {block: until-reset}}
    - {name: penalty, match: {api: x}, limit: 5, per: 1h, window: tumbling, then: {block: 30m}}
    - {name: kept, match: {api: x}, limit: 3, per: 1h, window: tumbling, then: {block: 1m}}
    - {name: tiered, match: {api: x}, limit: 3, per: 1h, window: tumbling, tiers: [{when: cost > 1, limit: 9}], then: {block: until-reset}}
    - {name: tried, match: {api: x}, limit: 50, candidate: {limit: 5}, per: 1h, window: tumbling, then: {block: until-reset}}
`

// changed counts six events at noon under the rules as they were, and judges them five minutes
// later by the rules as they are then: what changes, as sentences.
func changed(t *testing.T, replace ...string) []string {
	t.Helper()
	old := compiled(t, beforeChange)
	state := counted6(t, old)
	set := compiled(t, strings.NewReplacer(replace...).Replace(beforeChange))
	stepper := set.NewStepper()
	stepper.After(old)
	next, res := stepper.Rejudge(nil, state, []byte("uid=42"), noon+5*event.Minute)
	if err := CheckState(next); err != nil {
		t.Fatal(err)
	}
	told := sentences(res.Changes)
	// A second pass has nothing to do.
	if _, res = stepper.Rejudge(nil, next, []byte("uid=42"), noon+5*event.Minute+event.Second); len(res.Changes) > 0 {
		t.Errorf("once more: %q", sentences(res.Changes))
	}
	return told
}

func counted6(t *testing.T, set *Set) (state []byte) {
	t.Helper()
	matcher, stepper := set.NewMatcher(), set.NewStepper()
	for i := range event.Micros(6) {
		e := &event.Event{API: "x", UID: "42", Cost: event.One, Time: noon + i}
		for _, w := range matcher.Match(e, e.Time) {
			state, _ = stepper.Step(nil, state, Input{Key: w.Key, Hits: w.Hits, At: e.Time})
		}
	}
	return state
}

func sentences(changes []verdict.Verdict) (out []string) {
	for _, v := range changes {
		out = append(out, fmt.Sprintf("%s %v %v: %v of %v, %v to %v", v.Rule, v.State, v.Mode, v.Count, v.Limit,
			(v.Since-noon).Duration(), (v.Until-noon).Duration()))
	}
	return out
}

func TestChangedRulesAreJudgedByTheCountersThereAre(t *testing.T) {
	for _, tt := range []struct {
		name    string
		replace []string
		want    []string
	}{
		{"nothing", nil, nil},
		{"raised", []string{"limit: 5, per", "limit: 7, per"}, []string{
			"quota clear enforce: 6 of 7, 5m0s to 5m0s", "penalty clear enforce: 6 of 7, 5m0s to 5m0s",
		}},
		{"raised, not enough", []string{"limit: 5, per", "limit: 5.9k, per", "limit: 3, per: 1h, window: tumbling, then", "limit: 6, per: 1h, window: tumbling, then"}, []string{
			"quota clear enforce: 6 of 5900, 5m0s to 5m0s", "penalty clear enforce: 6 of 5900, 5m0s to 5m0s",
		}},
		{"lowered: the penalty that is over falls again", []string{"limit: 3, per: 1h, window: tumbling, then", "limit: 2, per: 1h, window: tumbling, then"}, []string{
			"kept block enforce: 6 of 2, 5m0s to 6m0s",
		}},
		{"mode", []string{"limit: 5, per: 1h, window: tumbling, then: {block: until-reset}}", "limit: 5, per: 1h, window: tumbling, mode: shadow, then: {block: until-reset}}"}, []string{
			"quota block shadow: 5 of 5, 4µs to 1h0m0s",
		}},
		{"apis", []string{"then: {block: 30m}", "then: {block: 30m, apis: y}"}, []string{"penalty block enforce: 6 of 5, 5µs to 30m0.000005s"}},
		{"a rule that is gone", []string{"name: quota", "name: renamed"}, []string{"quota clear enforce: 5 of 5, 5m0s to 5m0s"}},
		{"another window", []string{"name: penalty, match: {api: x}, limit: 5, per: 1h", "name: penalty, match: {api: x}, limit: 5, per: 2h"}, []string{
			"penalty clear enforce: 6 of 5, 5m0s to 5m0s",
		}},
		{"exempt", []string{"  rules:", "  exempt: [{uid: 42, reason: a test}]\n  rules:"}, []string{
			"quota clear enforce: 6 of 5, 5m0s to 5m0s", "penalty clear enforce: 6 of 5, 5m0s to 5m0s",
			"tiered clear enforce: 6 of 3, 5m0s to 5m0s", "tried/candidate clear shadow: 6 of 5, 5m0s to 5m0s",
		}},
		{"a tier's limit: the key is in none", []string{"limit: 9", "limit: 2"}, nil},
		{"a candidate that is gone", []string{"candidate: {limit: 5}, ", ""}, []string{"tried/candidate clear shadow: 6 of 50, 5m0s to 5m0s"}},
		{"a candidate that is raised", []string{"candidate: {limit: 5}, ", "candidate: {limit: 7}, "}, []string{"tried/candidate clear shadow: 6 of 7, 5m0s to 5m0s"}},
		{"a candidate that is new", []string{"tiers: [{when: cost > 1, limit: 9}]", "candidate: {limit: 6}"}, []string{
			"tiered/candidate block shadow: 6 of 6, 5m0s to 1h0m0s",
		}},
		{"a quota that becomes a penalty", []string{"name: quota, match: {api: x}, limit: 5, per: 1h, window: tumbling, then: {block: until-reset}", "name: quota, match: {api: x}, limit: 6, per: 1h, window: tumbling, then: {block: 1m}"}, []string{
			"quota clear enforce: 6 of 6, 5m0s to 5m0s",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, changed(t, tt.replace...)); diff != "" {
				t.Errorf("(- want)\n%s", diff)
			}
		})
	}
}

// What denied callers are told a rule is called changes at the blocks that there are, by the pass and by a key's next event, once.
func TestAChangedPublicNameIsPublishedAgain(t *testing.T) {
	named := strings.Replace(beforeChange, "name: penalty,", "name: penalty, public: slow-down,", 1)
	renamed := strings.Replace(named, "slow-down", "later", 1)
	for _, tt := range []struct{ before, after, public string }{
		{beforeChange, named, "slow-down"}, {named, renamed, "later"}, {renamed, beforeChange, ""},
	} {
		old, set := compiled(t, tt.before), compiled(t, tt.after)
		state := counted6(t, old)
		byPass, byEvent := set.NewStepper(), set.NewStepper()
		byPass.After(old)
		next, passed := byPass.Rejudge(nil, state, []byte("uid=42"), noon+event.Minute)
		_, stepped := byEvent.Step(nil, state, Input{Key: []byte("uid=42"), At: noon + event.Minute, Hits: unitHits(set.Limits[1])})
		for by, res := range map[string]Result{"the pass": passed, "the next event": stepped} {
			if len(res.Changes) != 1 || res.Changes[0].Rule != "penalty" || res.Changes[0].State != verdict.Block || res.Changes[0].Public != tt.public {
				t.Errorf("by %s: %+v, want the penalty that is called %q", by, res.Changes, tt.public)
			}
		}
		if _, again := byPass.Rejudge(nil, next, []byte("uid=42"), noon+2*event.Minute); len(again.Changes) > 0 {
			t.Errorf("once more: %+v", again.Changes)
		}
	}
}

// A state knows what it has published by a hash. That of rules without a public name is what it was before there were any: otherwise all
// that is in force would be published again after an upgrade.
func TestRulesWithoutAPublicNameShowTheSameFace(t *testing.T) {
	l := compiled(t, beforeChange).Limits[1]
	h := sha256.Sum256([]byte(`"penalty" 3 false ["x"]`))
	if want := binary.LittleEndian.Uint32(h[:]) | 1; l.faces[0] != want {
		t.Errorf("it is %x, want %x", l.faces[0], want)
	}
}

// All that a rule lets the world know carries its public name: blocks, notices, and what clears them, of all its limits.
func TestVerdictsCarryThePublicName(t *testing.T) {
	set := compiled(t, `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - name: card-testing-detector-v2
      public: payments
      match: {api: x}
      limits: [{name: burst, limit: 2, per: 1h, window: tumbling, candidate: {limit: 1}}, {name: day, limit: 4, per: 1h, window: tumbling}]
      warn: 50%
      refunds: true
      then: {block: until-reset}
`)
	matcher, stepper := set.NewMatcher(), set.NewStepper()
	var state []byte
	seen := map[string]bool{}
	for i, e := range []event.Event{{ID: "1", Cost: event.One}, {ID: "2", Cost: event.One}, {ID: "3", Refunds: "2", Cost: -event.One}} {
		e.API, e.UID, e.Time = "x", "42", noon+event.Micros(i)
		for _, w := range matcher.Match(&e, e.Time) {
			var res Result
			state, res = stepper.Step(nil, state, Input{Key: w.Key, Hits: w.Hits, At: e.Time, ID: e.ID})
			for _, v := range res.Changes {
				seen[v.Rule+" "+v.State.String()] = true
				if v.Public != "payments" {
					t.Errorf("%s %v is called %q", v.Rule, v.State, v.Public)
				}
			}
		}
	}
	const rule = "card-testing-detector-v2/"
	for _, want := range []string{rule + "burst block", rule + "burst clear", rule + "burst warn", rule + "day warn", rule + "burst/candidate block"} {
		if !seen[want] {
			t.Errorf("no %s among %v", want, seen)
		}
	}
	for _, e := range set.Explain(state, []byte("uid=42"), noon+event.Second, "") {
		if e.Public != "payments" {
			t.Errorf("explain calls %s %q", e.Rule, e.Public)
		}
	}
}

// What the background pass has not got to yet, the key's next event does.
func TestANextEventJudgesChangedRulesToo(t *testing.T) {
	old := compiled(t, beforeChange)
	state := counted6(t, old)
	set := compiled(t, strings.NewReplacer("name: quota", "name: renamed", "name: tiered, match: {api: x}, limit: 3", "name: tiered, match: {api: x}, limit: 8").Replace(beforeChange))
	_, res := set.NewStepper().Step(nil, state, Input{Key: []byte("uid=42"), At: noon + event.Minute, Hits: unitHits(set.Limits[3])})
	want := []string{"quota clear enforce: 5 of 5, 1m0s to 1m0s", "tiered clear enforce: 7 of 8, 1m0s to 1m0s"}
	if diff := cmp.Diff(want, sentences(res.Changes)); diff != "" {
		t.Errorf("(- want)\n%s", diff)
	}
}

// A verdict that the background pass let fall is from later than the key's latest event. A late
// refund ends it before it began: that clears it.
func TestAVerdictDoesNotEndBeforeItBegan(t *testing.T) {
	const rules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: orders, match: {api: x}, refunds: true, limit: 9, per: 10m, then: {block: until-reset}}
`
	old, set := compiled(t, rules), compiled(t, strings.Replace(rules, "limit: 9", "limit: 2", 1))
	key := []byte("uid=42")
	var state []byte
	p := old.NewStepper()
	for i, id := range []string{"a", "b", "c"} {
		hits := []Hit{{Limit: old.Limits[0], Amount: event.One, Cost: event.One}}
		state, _ = p.Step(nil, state, Input{Key: key, At: noon + event.Micros(i)*event.Minute, ID: id, Hits: hits})
	}
	p = set.NewStepper()
	p.After(old)
	state, res := p.Rejudge(nil, state, key, noon+10*event.Minute+event.Second/2)
	if want := []string{"orders block enforce: 2 of 2, 10m0.5s to 11m0s"}; !cmp.Equal(want, sentences(res.Changes)) {
		t.Fatalf("%q", sentences(res.Changes))
	}
	refund := []Hit{{Limit: set.Limits[0], Refund: true, Value: hashOfID("c"), Cost: event.One}}
	state, res = p.Step(nil, state, Input{Key: key, At: noon + 3*event.Minute, Hits: refund})
	if want := []string{"orders clear enforce: 2 of 2, 10m0.5s to 10m0.5s"}; !cmp.Equal(want, sentences(res.Changes)) || CheckState(state) != nil {
		t.Errorf("%q, %v", sentences(res.Changes), CheckState(state))
	}
}

// States of the version before had a block right in front of the window.
func TestStatesOfVersion1AreRead(t *testing.T) {
	set := compiled(t, beforeChange)
	state := counted6(t, set)
	k, err := readState(state)
	if err != nil {
		t.Fatal(err)
	}
	v1 := append([]byte{1}, state[1:len(state)-len(k.sections)]...)
	p := set.NewStepper()
	for rest := k.sections; len(rest) > 0; {
		sec, _, window, more, err := k.nextSection(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = more
		p.take(sec)
		b := &p.extras.live.block
		var block []byte
		if p.extras.live.had {
			block = b.append(nil)
			block = block[:len(block)-5-1-len(b.name)] // without face, shadow and name
		}
		hash := sec.hash()
		v1 = append(v1, hash[:]...)
		v1 = append(v1, byte((len(block)+len(window))<<1|bit(len(block) > 0)))
		v1 = append(append(v1, block...), window...)
	}
	if err := CheckState(v1); err != nil {
		t.Fatal(err)
	}
	if err := set.CheckWindows(v1); err != nil {
		t.Fatal(err)
	}
	// The penalty is in force there too; the quota goes on; nothing falls twice.
	in := Input{Key: []byte("uid=42"), At: noon + event.Minute, Hits: unitHits(set.Limits[0], set.Limits[1])}
	next, res := p.Step(nil, v1, in)
	if len(res.Changes) > 0 || CheckState(next) != nil || next[0] != stateVersion {
		t.Errorf("%q, %v", sentences(res.Changes), CheckState(next))
	}
	if x := set.Explain(next, in.Key, in.At, "")[1]; x.Verdict == nil || x.Verdict.Rule != "penalty" || x.Count != 7*event.One {
		t.Errorf("%+v", x)
	}
	if x := set.Explain(next, in.Key, in.At, "")[3]; x.Verdict == nil || x.Verdict.Until != noon+event.Hour {
		t.Errorf("%+v", x)
	}
}

// Where it is not known by what counts were judged, maybe by the set itself, what is wrong ends, and a
// quota that is reached is issued; a penalty that was served is not issued again.
func TestDoubtedCountsIssueNoPenalty(t *testing.T) {
	old := compiled(t, beforeChange)
	state := counted6(t, old)
	unknown := Judged{}
	for hash := range old.Judged() {
		unknown[hash] = JudgedBy{}
	}
	for _, tt := range []struct {
		set     *Set
		doubted bool
		want    []string
	}{
		{old, true, nil},
		{old, false, []string{"kept block enforce: 6 of 3, 5m0s to 6m0s"}}, // it was over after a minute
		{compiled(t, strings.ReplaceAll(beforeChange, "limit: 5, per", "limit: 7, per")), true, []string{
			"quota clear enforce: 6 of 7, 5m0s to 5m0s", "penalty clear enforce: 6 of 7, 5m0s to 5m0s",
		}},
		{compiled(t, strings.Replace(beforeChange, "limit: 50, candidate: {limit: 5}, ", "limit: 6, ", 1)), true, []string{
			"tried block enforce: 6 of 6, 5m0s to 1h0m0s", "tried/candidate clear shadow: 6 of 6, 5m0s to 5m0s",
		}},
	} {
		p := tt.set.NewStepper()
		p.AfterJudged(unknown, tt.doubted)
		_, res := p.Rejudge(nil, state, []byte("uid=42"), noon+5*event.Minute)
		if diff := cmp.Diff(tt.want, sentences(res.Changes)); diff != "" {
			t.Errorf("(- want)\n%s", diff)
		}
	}
}

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
