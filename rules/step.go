package rules

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/windows"
)

// Stepper steps keys' states by one Set. It keeps buffers between steps, so each goroutine
// has one of its own.
type Stepper struct {
	set *Set
	ids idRules

	window  []byte      // the window of a hit that is judged
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
	dst = p.stepSections(dst, old.sections, &in, latest, &res)
	p.sortChanges()
	res.Changes = p.changes
	return dst, res
}

// stepSections appends the old sections, those that were hit with the event in them, and
// then new ones for the limits that the key meets for the first time.
func (p *Stepper) stepSections(dst, sections []byte, in *Input, latest event.Micros, res *Result) []byte {
	p.met = append(p.met[:0], make([]bool, len(in.Hits))...)
	next := 0 // most likely: sections and hits tend to be in one order
	for len(sections) > 0 {
		sec, rest, ok := cutSection(sections)
		if !ok {
			break // not reached with a checked state
		}
		sections = rest
		i := next
		if i >= len(in.Hits) || in.Hits[i].Limit.Hash != sec.hash() {
			i = hitOf(in.Hits, sec.hash(), next)
		}
		if i >= 0 {
			p.met[i], next = true, i+1
			dst = p.hit(dst, sec, in, i, latest, res)
			continue
		}
		if l := p.set.byHash[sec.hash()]; l != nil {
			res.outlive(l, sec, latest)
			dst = append(dst, sec.raw...)
		}
	}
	for i, met := range p.met {
		if !met {
			dst = p.hit(dst, rawSection{}, in, i, latest, res)
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

// growth is about the most that a window's state grows by at one event: with that much room no
// window needs memory of its own.
const growth = 64

// hit appends a section, empty for a limit that the key had not met, with the i-th hit's amount
// added to its window, and judges it. The window is stepped where it is appended; where no
// block is involved, that is all.
func (p *Stepper) hit(dst []byte, sec rawSection, in *Input, i int, latest event.Micros, res *Result) []byte {
	l := in.Hits[i].Limit
	start := len(dst)
	if sec.hasBlock() {
		return p.hitBlock(dst, sec, in, i, latest, res)
	}
	dst = slices.Grow(dst, sectionHeadBytes+len(sec.body)+growth)
	dst = append(append(dst, l.Hash[:]...), 0) // most bodies' lengths take one byte
	body := len(dst)
	dst = append(dst, sec.body...)
	window, added, spent := l.Window.AddSpent(dst[body:], in.At, in.Hits[i].Amount)
	switch {
	case added.Late:
		res.Late++
		res.SpentAt = max(res.SpentAt, spent)
		return append(dst[:start], sec.raw...)
	case !l.quiet(added):
		p.window = append(p.window[:0], window...)
		return p.settle(dst[:start], &block{}, false, added, in, i, res)
	}
	res.SpentAt = max(res.SpentAt, spent)
	return closeSection(dst[:body], window)
}

// hitBlock is hit for a section that has a block.
func (p *Stepper) hitBlock(dst []byte, sec rawSection, in *Input, i int, latest event.Micros, res *Result) []byte {
	l := in.Hits[i].Limit
	b, window, err := readBlock(sec.body)
	if err != nil {
		return dst // not reached with a checked state
	}
	var added windows.Added
	p.window, added = l.Window.Add(append(p.window[:0], window...), in.At, in.Hits[i].Amount)
	if added.Late {
		res.Late++
		res.outlive(l, sec, latest)
		return append(dst, sec.raw...)
	}
	return p.settle(dst, &b, true, added, in, i, res)
}

// settle judges a hit whose window, with the event in it, is p.window, and appends its section.
func (p *Stepper) settle(dst []byte, b *block, had bool, added windows.Added, in *Input, i int, res *Result) []byte {
	l := in.Hits[i].Limit
	out := l.judge(b, had, p.window, added, in.Hits[i].Amount > 0)
	if out == fell {
		p.cause = append(p.cause[:0], in.Cause.ID...)
		b.id, b.partition, b.offset = p.cause, in.Cause.Partition, in.Cause.Offset
	}
	if out == fell || out == moved {
		p.publish(b, in, i)
	}
	res.SpentAt = max(res.SpentAt, l.Window.Spent(p.window))
	if out == none {
		return appendSection(dst, l.Hash, nil, p.window)
	}
	res.SpentAt = max(res.SpentAt, b.until)
	return appendSection(dst, l.Hash, b, p.window)
}

// publish notes a block that fell or moved as a change.
func (p *Stepper) publish(b *block, in *Input, i int) {
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
		sec, more, ok := cutSection(rest)
		if !ok {
			break
		}
		rest = more
		if l := p.set.byHash[sec.hash()]; l != nil {
			at = max(at, l.spent(sec))
		}
	}
	return at
}

// outlive moves SpentAt to when the limit's section no longer matters, if that is later. A
// window is looked into only if it may be: no window matters for longer than two of its
// lengths behind the key's latest time.
func (r *Result) outlive(l *Limit, sec rawSection, latest event.Micros) {
	if sec.hasBlock() || later(latest, 2*l.PerMax) > r.SpentAt {
		r.SpentAt = max(r.SpentAt, l.spent(sec))
	}
}

// spent is when the limit's section no longer matters.
func (l *Limit) spent(sec rawSection) event.Micros {
	if !sec.hasBlock() {
		return l.Window.Spent(sec.body)
	}
	b, window, err := readBlock(sec.body)
	if err != nil {
		return event.NoTime // not reached with a checked state
	}
	return max(b.until, l.Window.Spent(window))
}
