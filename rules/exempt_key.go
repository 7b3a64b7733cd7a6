package rules

import (
	"bytes"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// Exemptions are those that commands gave to a key: see CommandExempt. A caller that knows them can
// have them hold for keys with more dimensions, too: see Stepper.Exempt.
type Exemptions []keystate.Exemption

// ExemptionsOf returns the exemptions in a state that passed CheckState, or that a Stepper returned;
// nil when there are none, as in nearly all states. They share no memory with it.
func ExemptionsOf(state []byte) Exemptions {
	if !keystate.HasOwn(state) {
		return nil
	}
	k, err := keystate.Read(state)
	if err != nil {
		return nil // not reached with a checked state
	}
	var x keystate.KeySection
	if sec, _, ok := keystate.Cut(k.Sections); !ok || x.Read(sec.Body()) != nil || len(x.Exempt) == 0 {
		return nil // not reached with a checked state, but for the last
	}
	for i := range x.Exempt {
		x.Exempt[i].Rule, x.Exempt[i].Note = bytes.Clone(x.Exempt[i].Rule), bytes.Clone(x.Exempt[i].Note)
	}
	return x.Exempt
}

// Spare reports whether one of them is about a limit, and not over at a time.
func (x Exemptions) Spare(l *Limit, at event.Micros) bool {
	for i := range x {
		if at < x[i].Until && (len(x[i].Rule) == 0 || string(x[i].Rule) == l.Rule.Name || string(x[i].Rule) == l.Name) {
			return true
		}
	}
	return false
}
