package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
)

// A contract renews on the 31st, or on the last day of shorter months, and an agent's five hours begin with its first
// step: both go on over a crash. The steps are of the hours before now, so the rules let them be late.
func TestPeriodsBeginWhenTheyShould(t *testing.T) {
	t.Parallel() // it waits more than it works
	const list = `
    - {name: contract, match: {api: search.query}, limit: 3, per: month, window: calendar, anchor: 2026-01-31, then: {block: until-reset}}
    - {name: agent, match: {api: step}, limit: 2, per: 5h, window: from-first, then: {block: until-reset}}
`
	r := newRig(t, list)
	src := []byte("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: e2e}\nspec:\n  max_lateness: 1d\n  rules:\n" + list)
	if err := os.WriteFile(r.rules, src, 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	renews := time.Date(now.Year(), now.Month()+1, 0, 0, 0, 0, 0, time.UTC) // the month's last day
	if !now.Before(renews) {
		renews = time.Date(now.Year(), now.Month()+2, 0, 0, 0, 0, 0, time.UTC)
	}
	step := func(at time.Time) {
		value := fmt.Sprintf(`{"api":"step","uid":"u0","time":%q}`, at.Format(time.RFC3339Nano))
		r.put([]*sarama.ProducerMessage{r.record("u0", value)})
		r.caughtUp()
	}
	stands := func(p *Process, when string, steps int64, ends time.Time) {
		t.Helper()
		reply, err := explainKey(p, "uid=u0")
		if err != nil || len(reply.list) != 2 {
			t.Fatalf("%s: %+v, %v", when, reply.list, err)
		}
		contract, agent := &reply.list[0], &reply.list[1]
		if v := contract.Verdict; contract.Count != 3*event.One || v == nil || v.Until != event.FromTime(renews) {
			t.Errorf("%s: the contract has %s, and %+v is in force; it renews at %v", when, contract.Count, v, renews)
		}
		if agent.Count != event.Decimal(steps)*event.One || agent.Until != event.FromTime(ends) {
			t.Errorf("%s: the agent has %s until %v, not %d until %v", when, agent.Count, agent.Until, steps, ends)
		}
	}
	p := r.aggregator("a").Start().Ready()
	guard := r.enforcer()
	first := now.Add(-2 * time.Hour).Truncate(time.Microsecond)
	r.putEach(1, 3)
	step(first.Add(-8 * time.Hour)) // its five hours are over
	step(first)
	eventually(t, "the contract is used up", func() bool { return !allows(t, guard, "u0") })
	stands(p, "before the crash", 1, first.Add(5*time.Hour))
	p.Kill()
	p = r.aggregator("b").Start().Ready()
	step(first.Add(-time.Hour)) // late: it counts in the window, and moves nothing
	stands(p, "after the crash", 2, first.Add(5*time.Hour))
	if allows(t, guard, "u0") {
		t.Error("the contract is blocked no more after the crash")
	}
}
