package ruletest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// A rule test and a replay name the verdict that the enforcer names, whatever verdicts are in force on a request. A rule
// test that looked at two rule files named that of the first file where two ended at the same moment.
func TestRuleTestsNameWhatTheEnforcerNames(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	decided := map[string]int{}
	for range 20 {
		compareWinners(t, r, decided)
	}
	if len(decided) < 10 || decided[""] == 0 {
		t.Errorf("%d different rules decided, and none %d times: the rules are no test", len(decided), decided[""])
	}
}

// randomRules is a rule file in which each second event of a key lets verdicts fall, many with the same end.
func randomRules(r *rand.Rand, file int) string {
	var b strings.Builder
	b.WriteString("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: shop}\nspec:\n  rules:\n")
	for i, name := range r.Perm(26)[:2+r.IntN(5)] {
		fmt.Fprintf(&b, "    - {name: %c%d%d, match: {api: %q}, limit: 1, per: 1h, window: sliding, key: %s, mode: %s, then: {block: %s, action: %s}}\n",
			'a'+name, file, i, pick(r, "*", "*", "a.*"), pick(r, "uid", "uid", "ip", "ip/24", "api", "[uid, api]", "all"), pick(r, "enforce", "enforce", "enforce", "shadow"),
			pick(r, "1m", "1m", "2m", "3m"), pick(r, "block", "block", "challenge", "throttle", "log"))
	}
	return b.String()
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

// compareWinners has random verdicts fall by the rules of two files, and asks at random moments which one decides.
func compareWinners(t *testing.T, r *rand.Rand, decided map[string]int) {
	t.Helper()
	suite := &Suite{Reach: newReach()}
	var engines []*engine.Engine
	for i := range 2 {
		set, err := rules.Compile("rules.yaml", []byte(randomRules(r, i)))
		if err != nil {
			t.Fatal(err)
		}
		suite.Reach.add(set)
		suite.sets, engines = append(suite.sets, set), append(engines, engine.New(set))
	}
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	start, _ := event.ParseMicros(defaultStart)
	test := Test{Name: "who wins", Zone: time.UTC, Events: randomEvents(r, start)}
	var out engine.Outcome
	for i := range test.Events {
		e := &test.Events[i]
		for _, one := range engines {
			one.Apply(&e.Event, e.Broker, verdict.Cause{}, &out)
			table.Apply(0, out.Changes)
		}
	}
	last := test.Events[len(test.Events)-1].Broker
	for range 20 {
		x := Expect{At: last + event.Micros(r.Int64N(int64(3*event.Minute))), Who: randomEvents(r, start)[0].Event, Want: "none", Since: event.NoTime, Until: event.NoTime}
		who := []event.Dim{{Name: "uid", Value: x.Who.UID}, {Name: "ip", Value: x.Who.IP.String()}}
		want := table.CheckDimsAt(x.At, x.Who.API, who).Rule()
		decided[want]++
		test.Expect = []Expect{x} // nothing is in force, it says: the failure names what is
		got := ""
		for _, failure := range suite.Run(t.Context(), &test).Failures {
			_, named, _ := strings.Cut(failure.Got, " by ")
			got, _, _ = strings.Cut(named, " ")
		}
		if got != want {
			var among []string
			for _, v := range table.VerdictsAt(x.At, x.Who.API, who) {
				among = append(among, fmt.Sprintf("%s: %s until %s", v.Rule, v.Action, v.Until))
			}
			t.Fatalf("a rule test names %q, the enforcer %q, of %q", got, want, among)
		}
		var replayed []*verdict.Verdict
		for _, one := range engines {
			if held := one.Decide(&x.Who, x.At); len(held) > 0 {
				replayed = append(replayed, &held[0].Verdict)
			}
		}
		if best := strongest(replayed); best != nil && best.Decides() && best.Rule != want || best == nil && want != "" {
			t.Fatalf("a replay names %v, the enforcer %q", best, want)
		}
	}
}

func strongest(list []*verdict.Verdict) (best *verdict.Verdict) {
	for _, v := range list {
		if best == nil || verdict.Stronger(v, best) {
			best = v
		}
	}
	return best
}

// randomEvents are events of two users from two addresses within a few seconds.
func randomEvents(r *rand.Rand, at event.Micros) (all []Event) {
	for range 12 {
		at += event.Micros(r.IntN(2)) * event.Second
		e := Event{Broker: at, Event: event.Event{UID: pick(r, "42", "43"), API: pick(r, "a.b", "c"), Cost: event.One, Time: at, BrokerTime: event.NoTime}}
		_ = e.IP.UnmarshalText([]byte(pick(r, "192.0.2.1", "192.0.2.2")))
		all = append(all, e)
	}
	return all
}
