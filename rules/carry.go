package rules

import (
	"errors"
	"fmt"

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
func (p *Stepper) limitOfSection(sec rawSection) (*Limit, rawSection) {
	l := p.set.byHash[sec.hash()]
	if l == nil || sec.hash() == l.Hash {
		return l, sec
	}
	from := l.windowOf(sec.hash())
	window := l.Window.Carry(append([]byte(nil), p.take(sec)...), from)
	if !l.Rule.Refunds {
		p.extras.remembered = p.extras.remembered[:0]
	}
	carried, _, _ := cutSection(p.appendSection(nil, l.Hash, window))
	carried.version = stateVersion
	return l, carried
}

// begun is the section of a limit that the key has not met. A candidate with counters of its own begins
// with what the live limit has counted; the section is without verdicts.
func (p *Stepper) begun(l *Limit, old *keyState) (sec rawSection) {
	if l.beside == nil {
		return sec
	}
	for rest := old.sections; len(rest) > 0; {
		found, more, ok := cutSection(rest)
		if !ok {
			break
		}
		rest, found.version = more, old.version
		if p.set.byHash[found.hash()] != l.beside {
			continue
		}
		_, found = p.limitOfSection(found)
		_, window, _ := found.parts()
		window = l.Window.Carry(append([]byte(nil), window...), &l.beside.Window)
		sec, _, _ = cutSection(appendParts(nil, l.Hash, nil, window))
		sec.version = stateVersion
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
		return fmt.Errorf("%w: %s: %w", errState, l.Name, err)
	}
	return nil
}
