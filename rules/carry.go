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

// limitOfSection returns the limit that a section belongs to, nil when there is none any more, and the section
// as that limit has it now. One of a time when it counted otherwise is carried over: see windows.Spec.Carry.
func (p *Stepper) limitOfSection(sec keystate.Section) (*Limit, keystate.Section) {
	l := p.set.byHash[sec.Hash()]
	if l == nil || sec.Hash() == l.Hash {
		return l, sec
	}
	from := l.windowOf(sec.Hash())
	window := l.Window.Carry(append([]byte(nil), p.take(sec)...), from)
	if !l.Rule.Refunds {
		p.extras.Remembered = p.extras.Remembered[:0]
	}
	carried, _, _ := keystate.Cut(p.appendSection(nil, l.Hash, window))
	carried.Version = keystate.Version
	return l, carried
}

// begun is the section of a limit that the key has not met. A candidate with counters of its own begins
// with what the live limit has counted; the section is without verdicts.
func (p *Stepper) begun(l *Limit, old *keystate.Key) (sec keystate.Section) {
	if l.beside == nil {
		return sec
	}
	for rest := old.Sections; len(rest) > 0; {
		found, more, ok := keystate.Cut(rest)
		if !ok {
			break
		}
		rest, found.Version = more, old.Version
		if p.set.byHash[found.Hash()] != l.beside {
			continue
		}
		_, found = p.limitOfSection(found)
		_, window, _ := found.Parts()
		window = l.Window.Carry(append([]byte(nil), window...), &l.beside.Window)
		sec, _, _ = keystate.Cut(keystate.AppendSection(nil, l.Hash, nil, window))
		sec.Version = keystate.Version
	}
	return sec
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
		l := s.byHash[sec.Hash()]
		if l == nil {
			continue
		}
		if err := l.checkWindow(sec.Hash(), window); err != nil {
			return err
		}
	}
	return nil
}

// find returns the section of a limit; the zero one when there is none.
func (p *Stepper) find(k *keystate.Key, l *Limit) keystate.Section {
	for rest := k.Sections; len(rest) > 0; {
		sec, next, ok := keystate.Cut(rest)
		if !ok {
			break
		}
		if rest = next; p.set.byHash[sec.Hash()] == l {
			sec.Version = k.Version
			_, sec = p.limitOfSection(sec)
			return sec
		}
	}
	return keystate.Section{}
}
