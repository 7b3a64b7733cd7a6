package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// reset matches the events that empty a rule's windows: those that happened in a row begin anew.
type reset struct {
	match ruleMatch // without `when` and weights
	clear bool      // a penalty ends, too
}

// indexResets adds the APIs of the events that reset the rule to an index.
func (r *Rule) indexResets(ix *apiIndex[*Rule]) {
	if r.reset == nil {
		return
	}
	for place, a := range r.reset.match.apis {
		ix.add(a.pattern, apiEntry[*Rule]{rule: r, order: r.Index, place: place, limited: r.reset.match.takes(event.OutcomeLimited), reset: true})
	}
}

// resets reports whether an event resets a rule, and adds the hits that do it.
func (m *Matcher) resets(r *Rule, e *event.Event) bool {
	if !r.reset.match.fits(e) {
		return false
	}
	key := &m.keys.of[r.Shape.Index]
	if key.event != m.keys.event {
		m.keys.make(key, e, r.Shape)
	}
	if !key.there {
		return false
	}
	m.use(r, key)
	for _, l := range r.Limits {
		key.hits = append(key.hits, Hit{Limit: l, Reset: true, Tier: KeepTier})
	}
	return true
}

// isForgotten reports whether an event happened before one that emptied the window: it counts no more.
func (p *counts) isForgotten(at event.Micros) bool { return p.extras.WasReset && at <= p.extras.Reset }

// forget takes out of p.window what happened up to a moment. It returns false when that is late, or not
// after the last such moment: then there is nothing to do.
func (p *counts) forget(f *facts, l *Limit, at event.Micros) bool {
	x := &p.extras
	if p.isForgotten(at) {
		return false
	}
	var until event.Micros
	if p.window, f.added, until = l.Window.Forget(p.window, at); f.added.Late {
		return false
	}
	x.WasReset, x.Reset = true, at
	kept := x.Remembered[:0]
	for _, e := range x.Remembered {
		if e.At >= until {
			kept = append(kept, e)
		}
	}
	x.Remembered = kept
	f.took, f.reset = true, true
	return true
}

// ends reports whether a reset ends a penalty: nothing that is left would have issued it.
func (r *reset) ends(l *Limit, f *facts) bool {
	return r != nil && r.clear && f.reset && (f.limit == Unlimited || !l.passes(l.Window.Count(f.window), f.limit))
}

// remembersReset is until when it matters up to when nothing counts: what comes later than that is not so old.
func remembersReset(x *keystate.Extras, lateness event.Micros) event.Micros {
	return keystate.Later(x.Reset, lateness+1)
}
