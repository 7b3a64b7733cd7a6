package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// sections reads and appends keys' states: a section of each limit that the key has met.
type sections struct {
	counts
	set        *Set
	ids        keystate.IDRules
	keySection keystate.KeySection // what commands gave to the key
}

// read takes a state apart.
func (p *sections) read(state []byte) (old keystate.Key) {
	p.readInto(&old, state)
	return old
}

// readInto is read, into a key that is empty.
func (p *sections) readInto(old *keystate.Key, state []byte) {
	if p.keySection.Any {
		p.keySection.Clear()
	}
	if err := old.Read(state); err != nil {
		*old = keystate.Key{Latest: event.NoTime} // not reached with a checked state
	}
	if len(old.Sections) > len(keystate.KeyHash) && SectionHash(old.Sections) == keystate.KeyHash {
		if sec, _, ok := keystate.Cut(old.Sections); ok && p.keySection.Read(sec.Body()) != nil {
			p.keySection.Clear() // not reached with a checked state
		}
	}
	p.allow = p.keySection.Allow
}

// keepOwn appends the key's own section, unless all of it is over.
func (p *sections) keepOwn(dst []byte, sec keystate.Section, latest event.Micros, res *Result) []byte {
	spent := p.keySection.Spent()
	if latest >= spent {
		return dst
	}
	res.SpentAt = max(res.SpentAt, spent)
	return append(dst, sec.Raw...)
}

// spent returns the moment from which a whole state no longer matters.
func (p *sections) spent(k keystate.Key) event.Micros {
	res := Result{SpentAt: p.ids.Spent(&k.IDs, k.Latest)}
	for rest := k.Sections; len(rest) > 0; {
		sec, more, ok := keystate.Cut(rest)
		if !ok {
			break
		}
		rest = more
		sec.Version = k.Version
		if sec.Hash() == keystate.KeyHash {
			p.keepOwn(nil, sec, k.Latest, &res)
		} else if l, sec := p.limitOfSection(sec); l != nil {
			res.outlive(l, sec, k.Latest)
		}
	}
	return res.SpentAt
}

// limitOfSection returns the limit that a section belongs to, nil when there is none any more, and
// the section as that limit has it now. One of a time when it counted otherwise is carried over:
// see windows.Spec.Carry.
func (p *sections) limitOfSection(sec keystate.Section) (*Limit, keystate.Section) {
	l := p.set.byHash.of(sec.Hash())
	if l == nil || sec.Hash() == l.Hash {
		return l, sec
	}
	window := l.Carry(p.take(sec), sec.Hash())
	if !l.Rule.Refunds {
		p.extras.Remembered = p.extras.Remembered[:0]
	}
	carried, _, _ := keystate.Cut(p.appendSection(nil, l.Hash, window))
	carried.Version = keystate.Version
	return l, carried
}

// begun is the section of a limit that the key has not met. A candidate with counters of its own
// begins with what the live limit has counted; the section is without verdicts.
func (p *sections) begun(l *Limit, old *keystate.Key) (sec keystate.Section) {
	if l.beside == nil {
		return sec
	}
	for rest := old.Sections; len(rest) > 0; {
		found, more, ok := keystate.Cut(rest)
		if !ok {
			break
		}
		rest, found.Version = more, old.Version
		if p.set.byHash.of(found.Hash()) != l.beside {
			continue
		}
		_, found = p.limitOfSection(found)
		window := l.Window.Carry(append([]byte(nil), p.take(found)...), &l.beside.Window)
		reset := keystate.Extras{WasReset: p.extras.WasReset, Reset: p.extras.Reset}
		sec, _, _ = keystate.Cut(keystate.AppendSection(nil, l.Hash, reset.Append(nil), window))
		sec.Version = keystate.Version
	}
	return sec
}

// find returns the section of a limit; the zero one when there is none.
func (p *sections) find(k *keystate.Key, l *Limit) keystate.Section {
	for rest := k.Sections; len(rest) > 0; {
		sec, next, ok := keystate.Cut(rest)
		if !ok {
			break
		}
		if rest = next; p.set.byHash.of(sec.Hash()) == l {
			sec.Version = k.Version
			_, sec = p.limitOfSection(sec)
			return sec
		}
	}
	return keystate.Section{}
}

// refunds reports whether any limit remembers the event that a refund names, and whether the refund
// takes anything back of it under any limit, as of its time.
func (p *sections) refunds(old keystate.Key, hits []Hit, at event.Micros) (known, takes bool) {
	for rest := old.Sections; len(rest) > 0; {
		sec, more, ok := keystate.Cut(rest)
		if !ok {
			break
		}
		rest = more
		sec.Version = old.Version
		_, sec = p.limitOfSection(sec)
		i := hitOf(hits, sec.Hash(), 0)
		if i < 0 || !sec.HasExtra() {
			continue
		}
		p.window = append(p.window[:0], p.take(sec)...)
		window, e, back := p.refundOf(hits[i].Limit, &hits[i], at)
		p.window = window
		known, takes = known || e != nil, takes || back > 0
	}
	return known, takes
}

// rejudged appends the section that was judged.
func (p *sections) rejudged(dst []byte, l *Limit, res *Result) []byte {
	res.SpentAt = max(res.SpentAt, l.spent(&p.extras), l.Window.Spent(p.window))
	return p.appendSection(dst, l.Hash, p.window)
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

// outlive moves SpentAt to when the limit's section no longer matters, if that is later. A
// window is looked into only if it may be: no window matters for longer than two of its
// lengths behind the key's latest time. A strict limit's may be ahead of that, by its permits' times.
func (r *Result) outlive(l *Limit, sec keystate.Section, latest event.Micros) {
	window := sec.Body()
	if sec.HasExtra() {
		var x keystate.Extras
		extra, rest, ok := sec.Parts()
		if !ok || x.Read(extra, sec.Version) != nil {
			return // not reached with a checked state
		}
		r.SpentAt = max(r.SpentAt, l.spent(&x))
		window = rest
	}
	if l.Strict || keystate.Later(latest, 2*l.PerMax) > r.SpentAt {
		r.SpentAt = max(r.SpentAt, l.Window.Spent(window))
	}
}

// exemptOwn adds, changes or ends an exemption of the key.
func (p *sections) exemptOwn(cmd *Command, moment event.Micros) {
	kept := p.keySection.Exempt[:0]
	for _, e := range p.keySection.Exempt {
		if string(e.Rule) != cmd.Rule && e.Until > moment {
			kept = append(kept, e)
		}
	}
	if cmd.Until > moment && len(kept) < p.keySection.RoomForExemptions() {
		kept = append(kept, keystate.Exemption{Until: cmd.Until, Rule: []byte(cmd.Rule), Note: cmd.Giver.note()})
	}
	p.keySection.Exempt = kept
}
