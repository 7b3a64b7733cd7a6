package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// allowances are those of a key: what commands gave it. They name limits, not sections of the state: one whose limit
// is not in the rules waits for it until it ends.
//
// A key's threshold is limitBy: the limit of its own that is in force, else that of the rule file or the one it was
// told, and on top of it the sum of grants in force. What else is added to a key's limit, such as what it left unused
// before, belongs beside granted there, and its end beside grantsEnd in forecast.limitUntil: then judges, remainders
// and explanations go by it.
type allowances []allowance

type allowance = keystate.Allowance

// concern reports whether one of them is about a limit, be it over or not.
func (a allowances) concern(l *Limit) bool {
	for i := range a {
		if string(a[i].Rule) == l.Name {
			return true
		}
	}
	return false
}

// own is the limit of its own that a key has at a time; nil for none.
func (a allowances) own(l *Limit, at event.Micros) *allowance {
	for i := range a {
		if one := &a[i]; !one.Grant && one.Holds(at) && string(one.Rule) == l.Name {
			return one
		}
	}
	return nil
}

// granted is the sum of the grants in force at a time.
func (a allowances) granted(l *Limit, at event.Micros) (sum event.Decimal) {
	for i := range a {
		if one := &a[i]; one.Grant && one.Holds(at) && string(one.Rule) == l.Name {
			sum = sum.Plus(one.Amount)
		}
	}
	return sum
}

// grantsEnd is the next moment at which less is granted; event.MaxTime if there is none.
func (a allowances) grantsEnd(l *Limit, at event.Micros) event.Micros {
	until := event.MaxTime
	for i := range a {
		if one := &a[i]; one.Grant && one.Holds(at) && string(one.Rule) == l.Name {
			until = min(until, one.Ends())
		}
	}
	return until
}

// Allowance is a limit of its own that a command gave to a key, or a grant, which adds to the key's limit.
type Allowance struct {
	Grant  bool
	ID     string
	Rule   string        // the limit's name
	Amount event.Decimal // the limit, 0 is unlimited; or what is granted
	Until  event.Micros  // event.NoTime: it has no end
	Giver
}

// AllowancesOf are those in a state that hold at a time, in the order in which they were given. The state has passed
// CheckState, or a Stepper returned it. They share no memory with it.
func AllowancesOf(state []byte, at event.Micros) (list []Allowance) {
	all := allowancesOf(state)
	for i := range all {
		if a := &all[i]; a.Holds(at) {
			list = append(list, given(a))
		}
	}
	return list
}

// HasAllowances reports whether a state has any, be they over or not.
func HasAllowances(state []byte) bool { return len(allowancesOf(state)) > 0 }

// AllowanceOf is the one of an id that a state has, be it over or not.
func AllowanceOf(state []byte, id string) (a Allowance, has bool) {
	for _, one := range allowancesOf(state) {
		if string(one.ID) == id {
			return given(&one), true
		}
	}
	return a, false
}

func given(a *allowance) Allowance {
	return Allowance{Grant: a.Grant, ID: string(a.ID), Rule: string(a.Rule), Amount: a.Amount, Until: a.Until, Giver: giverOf(a.Note)}
}

// allowancesOf shares memory with the state.
func allowancesOf(state []byte) allowances {
	if !keystate.HasOwn(state) {
		return nil
	}
	k, err := keystate.Read(state)
	if err != nil {
		return nil // not reached with a checked state
	}
	var x keystate.KeySection
	if sec, _, ok := keystate.Cut(k.Sections); !ok || x.Read(sec.Body()) != nil {
		return nil // not reached with a checked state
	}
	return x.Allow
}
