package rules

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/windows"
)

// What the same limit is. A limit goes on with its counts, and with its permits, when the rules change its
// number, its tiers or overrides, refunds, `strict` and what that says. Of these, some change what its window
// keeps, and so the name of its counters: see formerSections. All that is kept by that name, in states, levels
// and permits, and in processes by themselves, is the limit's under each of its names. Any other window, key,
// count or name of the rule makes a new limit, which begins with nothing.

// Names lists the hashes under which the limit's counters may stand: its Hash, and those from when the rule had
// another number, tiers or refunds.
func (l *Limit) Names() []SectionHash {
	out := []SectionHash{l.Hash}
	for i := range l.formers {
		out = append(out, l.formers[i].hash)
	}
	return out
}

// Carry makes of counters of a name, which is one of the limit's Names, those that the limit has now. It changes
// neither; counters that are of the present name are returned as they are.
func (l *Limit) Carry(window []byte, of SectionHash) []byte {
	if of == l.Hash {
		return window
	}
	return l.Window.Carry(append([]byte(nil), window...), l.windowOf(of))
}

// windowOf returns the window of the limit's counters in a section of a name.
func (l *Limit) windowOf(hash SectionHash) *windows.Spec {
	if hash == l.Hash {
		return &l.Window
	}
	for i := range l.formers {
		if l.formers[i].hash == hash {
			return &l.formers[i].window
		}
	}
	return &l.Window
}

// checkWindow reports whether a section's window is one of the limit.
func (l *Limit) checkWindow(hash SectionHash, window []byte) error {
	err := l.windowOf(hash).Check(window)
	switch {
	case errors.Is(err, windows.ErrNewer):
		return fmt.Errorf("%w: %s: %w", ErrNewerState, l.Name, err)
	case err != nil:
		return fmt.Errorf("%w: %s: %w", keystate.ErrMalformed, l.Name, err)
	}
	return nil
}

// ErrNewerState means that a state was written by a newer binary than this one.
var ErrNewerState = keystate.ErrNewer

// CheckState reports whether state is one that this binary can step and explain: nil,
// ErrNewerState or another error. It doesn't know the rules: what the windows hold is not
// looked at, see Set.Check.
func CheckState(state []byte) error { return keystate.Check(state, nil) }

// Check is CheckState, and reports too whether the windows in a state are those of this set's limits.
// Sections of unknown limits are dropped by the next Step and not looked at.
func (s *Set) Check(state []byte) error { return keystate.Check(state, s.checkSection) }

func (s *Set) checkSection(of SectionHash, window []byte) error {
	if l := s.byHash.of(of); l != nil {
		return l.checkWindow(of, window)
	}
	return nil
}
