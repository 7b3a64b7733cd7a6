package rules

import (
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// Stepper steps keys' states by one Set. It keeps buffers between steps, so each goroutine
// has one of its own.
type Stepper struct {
	// Exempt, unless it is nil, says which keys are exempt besides those that the set and their own
	// states say: key's dimensions are sorted, at is its latest time.
	Exempt func(l *Limit, key []event.Dim, at event.Micros) bool

	// Fuses, unless it is nil, puts rules that would block too many keys into shadow mode.
	Fuses *Fuses

	set     *Set
	ids     keystate.IDRules
	changed []bool // of the set's limits: they judge otherwise than those of the set before
	doubted []bool // of the set's limits: they may have changed, or their keys may have been judged

	window     []byte              // the window of a hit that is judged
	extras     keystate.Extras     // of a section that is judged
	keySection keystate.KeySection // what commands gave to the key
	parts      []byte              // extras on the wire
	cause      []byte              // the id of the event
	name       []byte              // of a candidate's verdict
	seen       []bool              // which hits have had a section
	dims       []event.Dim         // of the event's key, once they are needed
	changes    []verdict.Verdict
	moves      []Move // of the changes
	order      []int  // of each change: its hit
}

// NewStepper returns a Stepper for the set.
func (s *Set) NewStepper() *Stepper {
	return &Stepper{set: s, ids: keystate.IDRules{Most: s.RecentIDs, Age: s.RecentFor}}
}

// begin takes a state apart, and forgets the step before.
func (p *Stepper) begin(state []byte) (old keystate.Key) {
	p.changes, p.moves, p.order, p.dims = p.changes[:0], p.moves[:0], p.order[:0], nil
	if p.keySection.Any {
		p.keySection.Clear()
	}
	var err error
	if old, err = keystate.Read(state); err != nil {
		old = keystate.Key{Latest: event.NoTime} // not reached with a checked state
	}
	if len(old.Sections) > len(keystate.KeyHash) && SectionHash(old.Sections) == keystate.KeyHash {
		if sec, _, ok := keystate.Cut(old.Sections); ok && p.keySection.Read(sec.Body) != nil {
			p.keySection.Clear() // not reached with a checked state
		}
	}
	return old
}

// hitOf returns the place of a section's hit, or -1. It looks from a place on, and around.
func hitOf(hits []Hit, hash SectionHash, from int) int {
	for n := range hits {
		i := from + n
		if i >= len(hits) {
			i -= len(hits)
		}
		if hits[i].Limit.Hash == hash {
			return i
		}
	}
	return -1
}

// sortChanges puts the changes into the order of their hits: that of sections depends on
// which limit counted the key first.
func (p *Stepper) sortChanges() {
	for i := 1; i < len(p.order); i++ {
		for j := i; j > 0 && p.order[j] < p.order[j-1]; j-- {
			p.order[j], p.order[j-1] = p.order[j-1], p.order[j]
			p.changes[j], p.changes[j-1] = p.changes[j-1], p.changes[j]
		}
	}
}

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
	spent := p.keySection.Spent()
	if latest >= spent {
		return dst
	}
	res.SpentAt = max(res.SpentAt, spent)
	return append(dst, sec.Raw...)
}

// key returns the dimensions of the key, which are parsed once a step.
func (p *Stepper) key(key []byte) []event.Dim {
	if p.dims == nil {
		p.dims, _ = event.ParseKey(key) // a key that the Matcher made is well-formed
	}
	return p.dims
}
