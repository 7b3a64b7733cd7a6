package rules

import (
	"slices"

	"github.com/tallygate/tallygate/event"
)

// apiOnly reports whether the API decides alone.
func (rm *ruleMatch) apiOnly() bool {
	return len(rm.outcomes) == 0 && len(rm.attrs) == 0 && rm.when == nil
}

// countsSome reports whether the rule counts only some requests of its key and API, by what a check does not
// know: attributes that are not in the key, a cost, a time.
func (r *Rule) countsSome() bool {
	unknown := func(dim string) bool { return !slices.Contains(r.Shape.dims(), dim) }
	if slices.ContainsFunc(r.match.attrs, func(a attrMatch) bool { return unknown("attrs." + a.name) }) {
		return true
	}
	return r.match.when != nil && slices.ContainsFunc(r.match.when.Asks(), func(variable string) bool {
		switch variable {
		case "api", "outcome":
			return false
		case "ip":
			return !slices.ContainsFunc(r.Shape.dims(), func(dim string) bool { _, isAddress := event.ParseAddressDim(dim); return isAddress })
		}
		return unknown(variable)
	})
}

// takes reports whether an outcome is one that the rule wants. A rule that names none wants every outcome,
// but that of what a limit denied.
func (rm *ruleMatch) takes(outcome string) bool {
	if len(rm.outcomes) > 0 {
		return slices.Contains(rm.outcomes, outcome)
	}
	return rm.anyOutcome || outcome != event.OutcomeLimited
}

// fits reports whether outcome and attributes are what the rule wants.
func (rm *ruleMatch) fits(e *event.Event) bool {
	if !rm.takes(e.Outcome) {
		return false
	}
	for i := range rm.attrs {
		v, ok := e.Attr(rm.attrs[i].name)
		if !ok || !rm.attrs[i].has(v.Text) {
			return false
		}
	}
	return true
}

// EventTime returns the one time that an event has for every rule: its own, or the broker's
// when it has none or claims to be from after it. ok is false for an event that is too old to
// be counted, or that has no time at all. broker is NoTime when it isn't known, as in a file
// to replay; the event's own time is then taken as it is.
func (s *Set) EventTime(e *event.Event, broker event.Micros) (at event.Micros, ok bool) {
	switch {
	case broker == event.NoTime:
		return e.Time, e.Time != event.NoTime
	case e.Time == event.NoTime || e.Time > broker:
		return broker, true
	case e.Time >= broker-s.MaxLateness:
		return e.Time, true
	case s.TooOldNow:
		return broker, true
	}
	return e.Time, false
}

// Match returns what an event means: for each key that it counts under, the limits and
// amounts, in the order of the rules. at is the event's time as EventTime gives it. What is
// returned, and Skipped, hold until the next Match.
func (m *Matcher) Match(e *event.Event, at event.Micros) []Work {
	m.begin()
	if e.Cost < 0 {
		return m.refund(e)
	}
	entries, limited := m.apis.find(e.API), e.Outcome == event.OutcomeLimited
	var resets *Rule // the rule that the event resets
	for i := range entries {
		entry := &entries[i]
		if limited && !entry.limited {
			continue
		}
		r := entry.rule
		if entry.reset || r == resets {
			if entry.reset && m.resets(r, e) {
				resets = r
			}
			continue
		}
		if !entry.apiOnly && !r.match.fits(e) {
			continue
		}
		key := &m.keys.of[r.Shape.Index]
		if key.event != m.keys.event {
			m.keys.make(key, e, r.Shape)
		}
		if !key.there || !entry.apiOnly && !m.holds(r, e, at) {
			if key.long {
				m.Skipped = append(m.Skipped, Skip{Rule: r, Reason: SkipKey})
			}
			continue
		}
		hit := Hit{Amount: entry.unit, Cost: e.Cost}
		if r.Count != CountEvents || e.Cost != event.One || r.match.byOutcome != nil {
			var reason string
			if hit.Amount, hit.Value, reason = m.count(r, e, entry.weight*r.match.byOutcome.of(e.Outcome)); reason != "" {
				m.Skipped = append(m.Skipped, Skip{Rule: r, Reason: reason})
				continue
			}
		}
		m.use(r, key)
		for _, l := range r.Limits {
			hit.Limit, hit.Tier, hit.Told = l, 0, 0
			if l.asks() {
				hit.Tier, hit.Told = m.tier(l, e, at)
			}
			key.hits = append(key.hits, hit)
		}
	}
	if limited {
		m.tells(e, entries, at)
	}
	return m.finish(e)
}
