package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// counts is a key's section of one limit, taken apart: it is counted in and judged.
type counts struct {
	window []byte          // of the hit that is judged
	extras keystate.Extras // of the section
	parts  []byte          // extras on the wire
	clock  clock
	allow  allowances // of the key, by commands
	next   forecast   // of the limit that is judged
}

// take reads a section's extras into p.extras, and returns its window.
func (p *counts) take(sec keystate.Section) (window []byte) {
	p.extras.Clear()
	extra, window, ok := sec.Parts()
	if !ok || len(extra) > 0 && p.extras.Read(extra, sec.Version) != nil {
		p.extras.Clear() // not reached with a checked state
	}
	return window
}

// appendSection appends a section of p.extras and a window.
func (p *counts) appendSection(dst []byte, hash SectionHash, window []byte) []byte {
	p.parts = p.extras.Append(p.parts[:0])
	return keystate.AppendSection(dst, hash, p.parts, window)
}

// add counts the event in p.window.
func (p *counts) add(f *facts, l *Limit, hit *Hit, at event.Micros) {
	if l.Rule.Count == CountDistinct {
		p.window, f.added = l.Window.AddValue(p.window, at, hit.Value)
		f.adds, f.counts = !f.added.Known, true
		return
	}
	if l.Window.Most > 0 {
		f.whole = l.Window.CountAt(p.window, at).Plus(hit.Amount)
	}
	p.window, f.added = l.Window.Add(p.window, at, hit.Amount)
}

// takeBack takes a refund out of p.window. One that takes nothing changes nothing, not even the
// latest time, and it returns false: no event of that name is remembered, it has left its window,
// or nothing is left of it to take.
func (p *counts) takeBack(l *Limit, hit *Hit, at event.Micros) bool {
	window, e, back := p.refundOf(l, hit, at)
	if back == 0 {
		return false
	}
	e.Taken += back
	p.window = l.Window.Take(window, e.At, back)
	return true
}

// refundOf finds the event that a refund names and what it takes back of it, and moves p.window on
// to the refund's time. Nothing else changes.
func (p *counts) refundOf(l *Limit, hit *Hit, at event.Micros) (window []byte, e *keystate.Remembered, back event.Decimal) {
	window, _ = l.Window.Add(p.window, at, 0)
	if l.Window.Kind.Follows() && at >= l.Window.Spent(window) { // a refund opens no window, and this one is over
		return window, nil, 0
	}
	if e = p.extras.Remembered.Find(&l.Window, window, hit.Value); e != nil {
		back = e.Back(hit.Cost, l.Rule.Count == CountEvents)
	}
	return window, e, back
}

// reset empties the window that was judged, and forgets what it counted. An event may have gone into
// ended windows and into current ones: then it empties all of them.
func (p *counts) reset(l *Limit, f *facts) {
	ended := f.added.Ended
	from := l.Window.Since(p.window)
	p.window = l.Window.Empty(p.window, ended)
	if ended && f.at >= from {
		p.window, p.extras.Remembered = l.Window.Empty(p.window, false), p.extras.Remembered[:0]
		return
	}
	kept := p.extras.Remembered[:0]
	for _, e := range p.extras.Remembered {
		if !l.Window.Kind.Slides() && (e.At < from) != ended {
			kept = append(kept, e)
		}
	}
	p.extras.Remembered = kept
}
