package rules

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/windows"
)

// windowOf is what the limit's counters in a section of a name are of.
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
