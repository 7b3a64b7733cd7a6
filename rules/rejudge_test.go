package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/verdict"
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
	if want := binary.LittleEndian.Uint32(h[:]) | 1; l.displayHashes[0] != want {
		t.Errorf("it is %x, want %x", l.displayHashes[0], want)
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
	k, err := keystate.Read(state)
	if err != nil {
		t.Fatal(err)
	}
	v1 := append([]byte{1}, state[1:len(state)-len(k.Sections)]...)
	p := set.NewStepper()
	for rest := k.Sections; len(rest) > 0; {
		sec, _, window, more, err := k.NextSection(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = more
		p.take(sec)
		b := &p.extras.Live.Block
		var block []byte
		if p.extras.Live.Had {
			block = b.Append(nil)
			block = block[:len(block)-5-1-len(b.Name)] // without face, shadow and name
		}
		hash := sec.Hash()
		v1 = append(v1, hash[:]...)
		v1 = append(v1, byte((len(block)+len(window))<<1|bit(len(block) > 0)))
		v1 = append(append(v1, block...), window...)
	}
	if err := CheckState(v1); err != nil {
		t.Fatal(err)
	}
	if err := set.Check(v1); err != nil {
		t.Fatal(err)
	}
	// The penalty is in force there too; the quota goes on; nothing falls twice.
	in := Input{Key: []byte("uid=42"), At: noon + event.Minute, Hits: unitHits(set.Limits[0], set.Limits[1])}
	next, res := p.Step(nil, v1, in)
	if len(res.Changes) > 0 || CheckState(next) != nil || next[0] != keystate.Version {
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

// A pass goes by the partition's time, which is ahead of a key's own. It forgot a penalty that was over by then, and the key's next
// event, from before the penalty's end, was blocked once more.
func TestAPassForgetsNoPenaltyThatLateEventsComeUnder(t *testing.T) {
	const text = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: penalty, match: {api: x}, limit: 3, per: 2s, window: tumbling, then: {block: 3s}}
    - {name: tried, match: {api: x}, limit: 50, candidate: {limit: 3}, per: 2s, window: tumbling, then: {block: 3s}}
    - {name: moving, match: {api: x}, limit: 2, per: 1h, window: tumbling, then: {block: until-reset}}
`
	old := compiled(t, text)
	set := compiled(t, strings.ReplaceAll(text, "limit: 2,", "limit: 90,"))
	var state []byte
	count := func(p *Stepper, at event.Micros) []string {
		t.Helper()
		e := &event.Event{API: "x", UID: "42", Cost: event.One, Time: noon + at}
		var told []string
		for _, w := range p.set.NewMatcher().Match(e, e.Time) {
			var res Result
			state, res = p.Step(nil, state, Input{Key: w.Key, Hits: w.Hits, At: e.Time})
			told = append(told, sentences(res.Changes)...)
		}
		return told
	}
	before := old.NewStepper()
	for _, at := range []event.Micros{0, 0, 0, 0, 2200, 2300, 2400} {
		count(before, at*event.Millisecond)
	}
	after := set.NewStepper()
	after.After(old)
	next, res := after.Rejudge(nil, state, []byte("uid=42"), noon+3100*event.Millisecond)
	if len(res.Changes) == 0 {
		t.Fatal("the pass changes nothing, so its state is not kept")
	}
	state = next
	if told := count(after, 2900*event.Millisecond); len(told) > 0 {
		t.Errorf("an event before the penalty's end: %q", told)
	}
	want := []string{"penalty block enforce: 5 of 3, 3.2s to 6.2s", "tried/candidate block shadow: 5 of 3, 3.2s to 6.2s"}
	if diff := cmp.Diff(want, count(after, 3200*event.Millisecond)); diff != "" {
		t.Errorf("an event behind it (- expected, + got)\n%s", diff)
	}
}

// Passes over all keys, for a limit that changes again and again, change nothing under any other limit, wherever between
// the events they come and however far the partition's time is ahead of the key's.
func TestPassesLeaveOtherLimitsAsTheyAre(t *testing.T) {
	const text = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  max_lateness: 2s
  rules:
    - {name: penalty, match: {api: x}, limit: 3, per: 2s, window: tumbling, then: {block: 3s}}
    - {name: growing, match: {api: x}, limit: 4, per: 3s, then: {escalate: [1s, 2s, 4s], forget: 5s}}
    - {name: again, match: {api: x}, limit: 3, per: 2s, then: {block: 1s, reset: true}}
    - {name: longer, match: {api: x}, limit: 4, per: 2s, then: {block: 2s, extend: true}}
    - {name: quota, match: {api: x}, limit: 4, candidate: {limit: 3}, per: 3s, then: {block: until-reset}}
    - {name: bucket, match: {api: x}, limit: 2, per: 1s, burst: 4, window: bucket, then: {block: until-reset}}
    - {name: session, match: {api: x}, limit: 5, window: session, gap: 1s, then: {block: until-reset}}
    - {name: moving, match: {api: x}, limit: 1, per: 1h, window: tumbling, then: {block: until-reset}}
`
	sets := []*Set{compiled(t, text), compiled(t, strings.ReplaceAll(text, "limit: 1,", "limit: 90000,"))}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	passes, kept := 0, 0
	for range testrun.Depth(100) {
		var with, without []byte
		stepper, plain, version := sets[0].NewStepper(), sets[0].NewStepper(), 0
		var told, want []string
		now := noon
		for range 200 {
			now += event.Micros(rnd.Int64N(int64(400 * event.Millisecond)))
			if rnd.IntN(4) == 0 {
				was := sets[version]
				version = 1 - version
				stepper = sets[version].NewStepper()
				stepper.After(was)
				next, res := stepper.Rejudge(nil, with, []byte("uid=42"), now)
				if passes++; len(res.Changes) > 0 {
					with = next
					kept++
				}
				for _, s := range sentences(res.Changes) {
					if !strings.HasPrefix(s, "moving ") {
						t.Fatalf("a pass at %v: %s", (now - noon).Duration(), s)
					}
				}
			}
			e := &event.Event{API: "x", UID: "42", Cost: event.One, Time: now - event.Micros(rnd.Int64N(int64(event.Second)))}
			step := func(p *Stepper, state []byte, told []string) ([]byte, []string) {
				for _, w := range p.set.NewMatcher().Match(e, e.Time) {
					var res Result
					state, res = p.Step(nil, state, Input{Key: w.Key, Hits: w.Hits, At: e.Time})
					for _, s := range sentences(res.Changes) {
						if !strings.HasPrefix(s, "moving ") {
							told = append(told, s)
						}
					}
				}
				return state, told
			}
			with, told = step(stepper, with, told)
			without, want = step(plain, without, want)
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Fatalf("verdicts (- without passes, + with)\n%s", diff)
		}
	}
	if kept < passes/4 {
		t.Errorf("of %d passes %d changed something", passes, kept)
	}
}
