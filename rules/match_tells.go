package rules

import (
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/when"
)

// tells adds the hits of an event whose action a limit denied under the rules that would have counted it: nothing
// happened, so it counts nothing, but it says which limit its key has now. Somebody who is denied could otherwise
// never say so.
//
// What such an event lacks, only the action would have shown: it may match the rule, and tells no limit that depends
// on it.
func (m *Matcher) tells(e *event.Event, entries []apiEntry[*Rule], at event.Micros) {
	m.known = *e
	m.known.Outcome = ""
	var resets *Rule
	for i := range entries {
		entry := &entries[i]
		r := entry.rule
		if entry.reset && entry.limited && r.reset.match.fits(e) {
			resets = r
		}
		if entry.reset || entry.limited || r == resets || !r.asks() || !r.match.mayHave(e) {
			continue
		}
		key := &m.keys.of[r.Shape.Index]
		if key.event != m.keys.event {
			m.keys.make(key, e, r.Shape)
		}
		if !key.there || r.match.parts != nil && m.predicates.May(r.match.parts, &m.known, at) == when.No {
			continue
		}
		for _, l := range r.Limits {
			if tier, told, known := m.toldTier(l, at); known {
				m.use(r, key)
				key.hits = append(key.hits, Hit{Limit: l, Cost: e.Cost, Tier: tier, Told: told, Tells: true})
			}
		}
	}
}

// toldTier is tier, as far as an event of a denied request tells it.
func (m *Matcher) toldTier(l *Limit, at event.Micros) (number int, told event.Decimal, known bool) {
	for i := range l.Tiers {
		switch m.predicates.May(l.Tiers[i].parts, &m.known, at) {
		case when.Yes:
			return i + 1, 0, true
		case when.Maybe:
			return 0, 0, false
		case when.No:
		}
	}
	if l.Told == nil {
		return 0, 0, len(l.Tiers) > 0
	}
	told, bad := l.Told.tell(l.Rule, &m.known)
	switch {
	case bad:
		m.Skipped = append(m.Skipped, Skip{Rule: l.Rule, Reason: SkipLimit})
		return 0, 0, true
	case told == Unlimited:
		return 0, 0, false
	}
	return len(l.Tiers) + 1, told, true
}

// asks reports whether events tell a limit of the rule.
func (r *Rule) asks() bool { return slices.ContainsFunc(r.Limits, (*Limit).asks) }
