package rules

import (
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// onlyTells reports whether all of an event's hits only tell limits.
func onlyTells(hits []Hit) bool {
	return len(hits) > 0 && !slices.ContainsFunc(hits, func(h Hit) bool { return !h.Tells })
}

// tell is Step for an event that only tells the key's limits. It is no event of the key: neither the latest time nor
// the ids change. A key that has counted nothing learns its limits with its first event.
func (p *Stepper) tell(dst, state []byte, old *keystate.Key, in *Input) ([]byte, Result) {
	start := len(dst)
	if len(old.Sections) > 0 {
		dst = keystate.AppendHeader(dst, old.Latest)
		dst = p.ids.AppendTo(dst, old.IDs, old.Latest, old.Latest, 0, false)
		p.told = false
		res := Result{Tells: true, SpentAt: max(old.Latest, p.ids.Spent(&old.IDs, old.Latest))}
		if dst = p.stepSections(dst, old, in, old.Latest, &res); p.told {
			p.sortChanges()
			res.Changes, res.Moves = p.changes, p.moves
			return dst, res
		}
		p.report.begin()
	}
	return append(dst[:start], state...), Result{Tells: true, Same: true, SpentAt: p.spent(*old)}
}

// tellHit tells a limit: its verdict in force is judged by that, and at the event's time. A limit of which nothing
// counts any more learns nothing, so that it makes no difference whether its key's state has left.
func (p *Stepper) tellHit(dst []byte, sec keystate.Section, in *Input, i int, latest event.Micros, res *Result) []byte {
	l, hit, x := in.Hits[i].Limit, &in.Hits[i], &p.extras
	p.window = append(p.window[:0], p.take(sec)...)
	counted := l.Window.Latest(p.window)
	if in.At < x.LastTold(counted) || in.At >= max(l.spent(x), l.Window.Spent(p.window)) {
		return p.keepHit(dst, sec, l, latest, res)
	}
	p.told = true
	f := facts{window: p.window, at: in.At, latest: max(in.At, counted), pass: true}
	before := toldBy(l, x, p.allow, p.window, in.Key, f.at)
	x.Tier, x.Told = l.tierID(hit.Tier), hit.Told
	x.WasTold, x.ToldAt = in.At > counted, in.At
	p.limitAt(l, &f, in.Key)
	f.exempt = p.isExempt(l, in.Key, f.latest)
	p.decide(l, &x.Live, &f, in, i, res)
	if l.Quota && !p.Fuses.shadow(l) {
		p.leftBy(l, &f, before)
	}
	return p.rejudged(dst, l, res)
}
