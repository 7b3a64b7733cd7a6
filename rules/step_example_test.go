package rules_test

import (
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// An event goes through a Matcher, which says which keys it is about, and for each of them
// through a Stepper, which counts it in the key's state. The caller keeps the states.
func ExampleStepper_Step() {
	set, err := rules.Compile("rules.yaml", []byte(`
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - name: orders
      match: {api: order.create}
      limit: 2
      per: 1h
      then: {block: until-reset}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	matcher, stepper := set.NewMatcher(), set.NewStepper()
	states := map[string][]byte{}

	start, _ := event.ParseMicros("2026-11-21T10:00:00Z")
	for i, id := range []string{"a", "b", "b", "c"} {
		e := &event.Event{ID: id, UID: "42", API: "order.create", Cost: event.One, Time: start + event.Micros(i)*event.Minute}
		at, _ := set.EventTime(e, event.NoTime)
		for _, work := range matcher.Match(e, at) {
			key := string(work.Key)
			state, res := stepper.Step(nil, states[key], rules.Input{
				Key: work.Key, Hits: work.Hits, At: at, ID: e.ID, Cause: verdict.Cause{ID: e.ID},
			})
			states[key] = state
			for _, v := range res.Changes {
				fmt.Printf("%s: %s %s, %v of %v, until %v\n", e.ID, v.Rule, v.State, v.Count, v.Limit, v.Until)
			}
			if res.Repeat {
				fmt.Printf("%s: came before\n", e.ID)
			}
		}
	}
	// Output:
	// b: orders block, 2 of 2, until 2026-11-21T11:00:00Z
	// b: came before
	// c: orders block, 3 of 2, until 2026-11-21T11:01:00Z
}
