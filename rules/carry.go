package rules

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/windows"
)

// windowOf is what the limit's counters in a section of a name are of.
func (l *Limit) windowOf(hash SectionHash) *windows.Spec {
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
// looked at, see Set.CheckWindows.
func CheckState(state []byte) error { return keystate.Check(state) }

// CheckWindows reports whether the windows in a state that passed CheckState are those of
// this set's limits. Sections of unknown limits are dropped by the next Step and not looked at.
func (s *Set) CheckWindows(state []byte) error {
	k, err := keystate.Read(state)
	if err != nil {
		return err
	}
	for rest := k.Sections; len(rest) > 0; {
		sec, _, window, more, err := k.NextSection(rest)
		if err != nil {
			return err
		}
		rest = more
		l := s.byHash.of(sec.Hash())
		if l == nil {
			continue
		}
		if err := l.checkWindow(sec.Hash(), window); err != nil {
			return err
		}
	}
	return nil
}
