package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// Stepper steps keys' states by one Set. It keeps buffers between steps, so each goroutine
// has one of its own.
//
// It is built in layers, each of which calls only those below it: counts of one limit, sections
// of all limits, and the Stepper, which judges and reports.
type Stepper struct {
	// Exempt, unless it is nil, says which keys are exempt besides those that the set and their own
	// states say: key's dimensions are sorted, at is its latest time.
	Exempt func(l *Limit, key []event.Dim, at event.Micros) bool

	// Fuses, unless it is nil, puts rules that would block too many keys into shadow mode.
	Fuses *Fuses

	// Gave holds what came of the last Command for a limit or a grant: whether the key had it already, or why it was
	// refused; in both cases nothing has changed.
	Gave struct {
		Repeated bool
		Err      error
	}

	sections
	report

	changed []bool // of the set's limits: they judge otherwise than those of the set before
	doubted []bool // of the set's limits: they may have changed, or their keys may have been judged

	name []byte // of a candidate's verdict
	told bool   // the event that is stepped has told a limit
	seen []bool // which hits have had a section
	hits []Hit  // of an event whose permit was counted as lost
}

// NewStepper returns a Stepper for the set.
func (s *Set) NewStepper() *Stepper {
	return &Stepper{sections: sections{set: s, ids: keystate.IDRules{Most: s.RecentIDs, Age: s.RecentFor}}}
}
