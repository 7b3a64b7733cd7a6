package rules

import (
	"github.com/cespare/xxhash/v2"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Stepper steps keys' states by one Set. It keeps buffers between steps, so each goroutine
// has one of its own.
type Stepper struct {
	set *Set
	ids idRules

	window  []byte      // the window that is being added to
	cause   []byte      // the id of the event
	met     []bool      // which hits have had a section
	dims    []event.Dim // of the event's key, once a change needs them
	changes []verdict.Verdict
	order   []int // of each change: its hit
}

// NewStepper returns a Stepper for the set.
func (s *Set) NewStepper() *Stepper {
	return &Stepper{set: s, ids: idRules{most: s.RecentIDs, age: s.RecentFor}}
}

// Step counts one event for one key: it reads the key's state (length 0: a new key),
// appends the state with the event in it to dst, and says what changed. dst and state must not
// overlap; state must have passed CheckState and Set.CheckWindows, or be what a Step returned.
//
// Nothing is allocated but room in dst and what changes need.
func (p *Stepper) Step(dst, state []byte, in Input) ([]byte, Result) {
	p.changes, p.order, p.dims = p.changes[:0], p.order[:0], nil
	old, err := readState(state)
	if err != nil {
		old = keyState{latest: event.NoTime} // not reached with a checked state
	}
	in.At = min(max(in.At, event.MinTime), event.MaxTime)
	latest := max(old.latest, in.At)
	var id uint64
	if in.ID != "" {
		id = xxhash.Sum64String(in.ID)
		if p.ids.seen(old.ids, id, old.latest, latest) {
			return append(dst, state...), Result{Repeat: true, SpentAt: p.spent(old)}
		}
	}
	dst = appendHeader(dst, latest)
	dst = p.ids.appendTo(dst, old.ids, old.latest, latest, id, in.ID != "")
	res := Result{SpentAt: max(latest, p.ids.spent(old.ids, old.latest))}
	if in.ID != "" && p.ids.most > 0 {
		res.SpentAt = later(latest, p.ids.age)
	}
	dst = p.stepSections(dst, old.sections, in, latest, &res)
	p.sortChanges()
	res.Changes = p.changes
	return dst, res
}

// stepSections appends the old sections, those that were hit with the event in them, and
// then new ones for the limits that the key meets for the first time.
func (p *Stepper) stepSections(dst, sections []byte, in Input, latest event.Micros, res *Result) []byte {
	p.met = append(p.met[:0], make([]bool, len(in.Hits))...)
	next := 0 // most likely: sections and hits tend to be in one order
	for len(sections) > 0 {
		sec, rest, err := nextSection(sections)
		if err != nil {
			break // not reached with a checked state
		}
		sections = rest
		if i := hitOf(in.Hits, sec.hash, next); i >= 0 {
			p.met[i], next = true, i+1
			dst = p.hit(dst, &sec, in, i, latest, res)
			continue
		}
		if l := p.set.byHash[sec.hash]; l != nil {
			res.outlive(l, &sec, latest)
			dst = append(dst, sec.raw...)
		}
	}
	for i, met := range p.met {
		if !met {
			dst = p.hit(dst, &section{hash: in.Hits[i].Limit.Hash}, in, i, latest, res)
		}
	}
	return dst
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

// hit adds the i-th hit's amount to its section, judges it, and appends the section.
func (p *Stepper) hit(dst []byte, sec *section, in Input, i int, latest event.Micros, res *Result) []byte {
	l, amount := in.Hits[i].Limit, in.Hits[i].Amount
	window, added := l.Window.Add(append(p.window[:0], sec.window...), in.At, amount)
	p.window = window
	if added.Late {
		res.Late++
		res.outlive(l, sec, latest)
		return append(dst, sec.raw...)
	}
	b := &sec.block
	out := l.judge(b, sec.hasBlock, window, added, amount > 0)
	if out == fell {
		p.cause = append(p.cause[:0], in.Cause.ID...)
		b.id, b.partition, b.offset = p.cause, in.Cause.Partition, in.Cause.Offset
	}
	if out == fell || out == moved {
		p.publish(b, in, i)
	}
	sec.hasBlock, sec.window = out != none, window
	res.outlive(l, sec, latest)
	if out == none {
		b = nil
	}
	return appendSection(dst, sec.hash, b, window)
}

// publish notes a block that fell or moved as a change.
func (p *Stepper) publish(b *block, in Input, i int) {
	if p.dims == nil {
		p.dims, _ = event.ParseKey(in.Key) // a key that the Matcher made is well-formed
	}
	p.changes = append(p.changes, b.verdict(in.Hits[i].Limit, p.dims))
	p.order = append(p.order, i)
}

// sortChanges puts the changes into the order of their hits: that of sections depends on
// what the key met first.
func (p *Stepper) sortChanges() {
	for i := 1; i < len(p.order); i++ {
		for j := i; j > 0 && p.order[j] < p.order[j-1]; j-- {
			p.order[j], p.order[j-1] = p.order[j-1], p.order[j]
			p.changes[j], p.changes[j-1] = p.changes[j-1], p.changes[j]
		}
	}
}

// spent is when a whole state no longer matters.
func (p *Stepper) spent(k keyState) event.Micros {
	at := p.ids.spent(k.ids, k.latest)
	for rest := k.sections; len(rest) > 0; {
		var sec section
		var err error
		if sec, rest, err = nextSection(rest); err != nil {
			break
		}
		if l := p.set.byHash[sec.hash]; l != nil {
			at = max(at, l.spent(&sec))
		}
	}
	return at
}

// outlive moves SpentAt to when the limit's section no longer matters, if that is later. A
// window is looked into only if it may be: no window matters for longer than two of its
// lengths behind the key's latest time.
func (r *Result) outlive(l *Limit, sec *section, latest event.Micros) {
	if sec.hasBlock {
		r.SpentAt = max(r.SpentAt, sec.block.until)
	}
	if later(latest, 2*l.PerMax) > r.SpentAt {
		r.SpentAt = max(r.SpentAt, l.Window.Spent(sec.window))
	}
}

// spent is when the limit's section no longer matters.
func (l *Limit) spent(sec *section) event.Micros {
	at := l.Window.Spent(sec.window)
	if sec.hasBlock {
		at = max(at, sec.block.until)
	}
	return at
}
