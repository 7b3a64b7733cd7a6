package rules

import (
	"bytes"

	"github.com/tallygate/tallygate/pipeline/event"
)

// Exemptions are those that commands gave to a key: see CommandExempt. A caller that knows them can
// have them hold for keys with more dimensions, too: see Stepper.Exempt.
type Exemptions []ownExemption

// ExemptionsOf returns the exemptions in a state that passed CheckState, or that a Stepper returned;
// nil when there are none, as in nearly all states. They share no memory with it.
func ExemptionsOf(state []byte) Exemptions {
	k, err := readState(state)
	if err != nil || len(k.sections) <= len(ownHash) || SectionHash(k.sections) != ownHash {
		return nil
	}
	var x keyExtras
	if sec, _, ok := cutSection(k.sections); !ok || x.read(sec.body) != nil || len(x.exempt) == 0 {
		return nil // not reached with a checked state, but for the last
	}
	for i := range x.exempt {
		x.exempt[i].rule = bytes.Clone(x.exempt[i].rule)
	}
	return x.exempt
}

// Spare reports whether one of them is about a limit, and not over at a time.
func (x Exemptions) Spare(l *Limit, at event.Micros) bool {
	for i := range x {
		if at < x[i].until && x[i].isAbout(l) {
			return true
		}
	}
	return false
}

func (e *ownExemption) isAbout(l *Limit) bool {
	return len(e.rule) == 0 || string(e.rule) == l.Rule.Name || string(e.rule) == l.Name
}
