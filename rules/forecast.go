package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// forecast predicts a key's limits under a limit if no event tells another one: tiers follow the clock, and
// overrides and what commands gave may have an end.
type forecast struct {
	allow  allowances
	clock  *clock
	extras *keystate.Extras
	key    []byte
	falls  []fall // of below
}

// fall is the moment at which a count falls below a limit.
type fall struct {
	limit event.Decimal
	at    event.Micros
}

// limitAt finds the limit by which p.extras are judged, and what there is to know of those that come behind it.
func (p *counts) limitAt(l *Limit, f *facts, key []byte) (known bool) {
	f.limit, known = l.limitBy(&p.extras, p.allow, p.clock.tierAt(l, p.extras.Tier, f.latest), key, f.latest)
	if f.ahead = nil; l.clockStep > 0 || l.overrides.ends(key, f.latest) != event.NoTime || p.allow.concern(l) {
		p.next.allow, p.next.clock, p.next.extras, p.next.key = p.allow, &p.clock, &p.extras, key
		f.ahead = &p.next
	}
	return known
}

// limitUntil is the limit of a moment, and until when at least it is in force.
func (n *forecast) limitUntil(l *Limit, at event.Micros) (limit event.Decimal, until event.Micros) {
	tier, until := n.clock.tierUntil(l, n.extras.Tier, at)
	if ends := l.overrides.ends(n.key, at); ends != event.NoTime {
		until = ends
	}
	if own := n.allow.own(l, at); own != nil {
		until = own.Ends()
	}
	limit, _ = l.limitBy(n.extras, n.allow, tier, n.key, at)
	return limit, min(until, n.allow.grantsEnd(l, at))
}

// below is facts.below, from a moment that is not before the window's latest.
func (n *forecast) below(l *Limit, window []byte, at event.Micros) (until event.Micros, exact bool) {
	n.falls = n.falls[:0]
	for now := at; ; {
		limit, ends := n.limitUntil(l, now)
		falls := now
		if limit != Unlimited {
			falls = max(n.fall(l, window, limit), now)
		}
		if falls < ends || ends >= event.MaxTime || l.clockStep > 0 && ends-at > reach*l.clockStep {
			return falls, falls == now && now > at
		}
		now = ends
	}
}

// fall returns the moment at which the window's count falls below a limit.
func (n *forecast) fall(l *Limit, window []byte, limit event.Decimal) event.Micros {
	for _, f := range n.falls {
		if f.limit == limit {
			return f.at
		}
	}
	at := below(&l.Window, window, limit)
	n.falls = append(n.falls, fall{limit, at})
	return at
}
