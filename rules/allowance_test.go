package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// allowing gives a key limits and grants, as an owner does.
type allowing struct {
	t     *testing.T
	s     *Stepper
	state []byte
}

func (a *allowing) give(cmd Command) error {
	a.t.Helper()
	key := []byte("uid=1")
	plan, repeated, err := cmd.Plan(a.s, a.state, key)
	if err != nil || repeated {
		return err
	}
	next, _ := a.s.Command(nil, a.state, key, plan)
	if err := a.s.Gave.Err; err != nil {
		a.t.Errorf("planned, and then %v", err)
	}
	if err := CheckState(next); err != nil {
		a.t.Fatal(err)
	}
	a.state = next
	return nil
}

// A key would have had limits and grants without bound, and a state that no record holds. One that is over makes room
// once its id is forgotten.
func TestAKeyHasOnlySoManyAllowances(t *testing.T) {
	set := compileRules(t, "    - {name: a, match: {api: x}, limit: 5, per: 1h, window: tumbling, then: {block: until-reset}}\n")
	a := allowing{t: t, s: set.NewStepper()}
	grant := Command{Kind: CommandGrant, Rule: "a", Amount: event.One, At: noon, Until: noon + event.Hour}
	grant.Giver = Giver{By: strings.Repeat("x", 200), Reason: strings.Repeat("é", 400)}
	for i := range keystate.MaxAllowances {
		if grant.ID = fmt.Sprint(i); a.give(grant) != nil {
			t.Fatal(i)
		}
	}
	if grant.ID = "more"; !errors.Is(a.give(grant), ErrRefused) {
		t.Error("the key has more grants in force than it may")
	}
	if got := len(AllowancesOf(a.state, noon)); got != keystate.MaxAllowances || !HasAllowances(a.state) {
		t.Errorf("it has %d", got)
	}
	for i := keystate.MaxAllowances; i < keystate.MaxRemembered; i++ {
		grant.At += 2 * event.Minute
		grant.ID, grant.Until = fmt.Sprint(i), grant.At+1
		if grant.At < noon+event.Hour {
			grant.At, grant.Until = noon+event.Hour, noon+event.Hour+1
		}
		if err := a.give(grant); err != nil {
			t.Fatal(i, err)
		}
	}
	if grant.ID = "more"; !errors.Is(a.give(grant), ErrRefused) {
		t.Error("more ids are remembered than may be")
	}
	grant.At = noon + keepsID + 1
	grant.Until = grant.At + 1
	if err := a.give(grant); err != nil || len(a.state) > MaxStateBytes/3 {
		t.Errorf("a week later: %v, in a state of %d bytes", err, len(a.state))
	}
}

// Programs that know no allowances take all of a key's for one exemption from a rule that there is not, and keep it.
func TestOlderProgramsKeepAllowances(t *testing.T) {
	set := compileRules(t, "    - {name: a, match: {api: x}, limit: 5, per: 1h, window: tumbling, then: {block: until-reset}}\n")
	a := allowing{t: t, s: set.NewStepper()}
	for i := range keystate.MaxExemptions {
		a.state, _ = a.s.Command(nil, a.state, []byte("uid=1"), Command{Kind: CommandExempt, Rule: fmt.Sprint(i), At: noon, Until: noon + event.Hour})
	}
	limit := Command{Kind: CommandLimit, Rule: "a", Amount: 7 * event.One, ID: "i", At: noon, Until: event.NoTime}
	if !errors.Is(a.give(limit), ErrRefused) {
		t.Error("there are more exemptions and allowances than older programs read")
	}
	a.state, _ = a.s.Command(nil, a.state, []byte("uid=1"), Command{Kind: CommandExempt, Rule: "7", At: noon, Until: noon})
	if err := a.give(limit); err != nil {
		t.Fatal(err)
	}
	a.state, _ = a.s.Command(nil, a.state, []byte("uid=1"), Command{Kind: CommandExempt, Rule: "more", At: noon, Until: noon + event.Hour})
	var res Result
	a.state, res = a.s.Step(nil, a.state, Input{Key: []byte("uid=1"), At: noon + 9*event.Day, Hits: []Hit{{Limit: set.Limits[0], Amount: event.One}}})
	if got, has := AllowanceOf(a.state, "i"); !has || got.Amount != 7*event.One || res.SpentAt != event.MaxTime {
		t.Errorf("it has %v, and its state is spent at %v", got, res.SpentAt)
	}
	if got := len(ExemptionsOf(a.state)); got != keystate.MaxExemptions-1 {
		t.Errorf("it has %d exemptions", got)
	}
}
