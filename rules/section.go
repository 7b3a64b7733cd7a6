package rules

import (
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// take reads a section's extras into p.extras, and returns its window.
func (p *Stepper) take(sec keystate.Section) (window []byte) {
	p.extras.Clear()
	extra, window, ok := sec.Parts()
	if !ok || len(extra) > 0 && p.extras.Read(extra, sec.Version) != nil {
		p.extras.Clear() // not reached with a checked state
	}
	return window
}

// appendSection appends a section of p.extras and a window.
func (p *Stepper) appendSection(dst []byte, hash SectionHash, window []byte) []byte {
	p.parts = p.extras.Append(p.parts[:0])
	return keystate.AppendSection(dst, hash, p.parts, window)
}

// keepOwn appends the key's own section, unless all of it is over.
func (p *Stepper) keepOwn(dst []byte, sec keystate.Section, latest event.Micros, res *Result) []byte {
	spent := p.own.Spent()
	if latest >= spent {
		return dst
	}
	res.SpentAt = max(res.SpentAt, spent)
	return append(dst, sec.Raw...)
}
