package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/when"
)

// Why a rule that otherwise matches did not count an event.
const (
	SkipWhen     = "when_failed"  // the predicate failed, or was not a boolean
	SkipFraction = "fraction"     // weight × cost is no whole number
	SkipAbsent   = "absent"       // the event lacks what is summed or told apart
	SkipNumber   = "not_a_number" // the attribute that is summed is no number
	SkipNegative = "negative"     // the attribute that is summed is negative
	SkipLimit    = "bad_limit"    // the attribute that tells the limit is none: the event counts, and `else` holds
	SkipKey      = "key_too_long" // its key's text would be longer than event.MaxKey
)

// Skip is a rule that did not count an event, or counted it under another limit, for a reason that
// someone should know of.
type Skip struct {
	Rule   *Rule
	Reason string // one of the Skip constants
}

// Matcher finds what events mean for keys. It keeps buffers between events, so that it
// allocates nothing but what `when` predicates need; each goroutine has one of its own.
type Matcher struct {
	// Skipped are the rules that the last Match left out although they are for such events.
	Skipped []Skip

	set   *Set
	apis  apiCache
	keys  eventKeys
	used  []*shapeKey // those that the current event has hits under
	works []Work
	text  []byte      // of a value
	known event.Event // what a denied request has of the event that it would have been

	predicates *when.Evaluator
}

// NewMatcher returns a Matcher for the set.
func (s *Set) NewMatcher() *Matcher {
	predicates := when.NewEvaluator()
	for _, r := range s.Rules {
		predicates.Know(r.match.when)
		predicates.KnowParts(r.match.parts)
		for _, l := range r.Limits {
			for i := range l.Tiers {
				predicates.Know(l.Tiers[i].when)
				predicates.KnowParts(l.Tiers[i].parts)
			}
		}
	}
	return &Matcher{
		set:        s,
		apis:       newAPICache(s.index, apiSlots),
		keys:       eventKeys{of: make([]shapeKey, len(s.Shapes))},
		predicates: predicates,
	}
}

// use notes that the event has hits under a rule's key.
func (m *Matcher) use(r *Rule, key *shapeKey) {
	if len(key.hits) == 0 {
		m.used = append(m.used, key)
		m.works = append(m.works, Work{Shape: r.Shape, Key: key.text})
	}
}

func (m *Matcher) finish(e *event.Event) []Work {
	for i := range m.works {
		w := &m.works[i]
		w.Hits = m.used[i].hits
		w.Hash = hashOf(e, w)
	}
	return m.works
}

// begin forgets the last event.
func (m *Matcher) begin() {
	for _, key := range m.used {
		key.hits = key.hits[:0]
	}
	m.keys.event++
	m.Skipped, m.used, m.works = m.Skipped[:0], m.used[:0], m.works[:0]
	m.predicates.Next()
}

// holds evaluates a rule's `when` for the event.
func (m *Matcher) holds(r *Rule, e *event.Event, at event.Micros) bool {
	return r.match.when == nil || m.eval(r, r.match.when, e, at)
}

// eval evaluates a predicate of a rule; one that fails does not hold.
func (m *Matcher) eval(r *Rule, p *when.Predicate, e *event.Event, at event.Micros) bool {
	holds, ok := m.predicates.Holds(p, e, at)
	if !ok {
		m.Skipped = append(m.Skipped, Skip{Rule: r, Reason: SkipWhen})
	}
	return holds
}

// hashOf hashes the part of a Work's key that decides about its partition.
func hashOf(e *event.Event, w *Work) uint32 {
	if !w.Shape.HasUID {
		return event.Murmur2(w.Key)
	}
	return event.Murmur2(e.UID)
}

// tier is the number of the first tier of the limit whose predicate holds for the event. Behind them
// comes what the event itself tells.
func (m *Matcher) tier(l *Limit, e *event.Event, at event.Micros) (number int, told event.Decimal) {
	for i := range l.Tiers {
		if m.eval(l.Rule, l.Tiers[i].when, e, at) {
			return i + 1, 0
		}
	}
	if l.Told == nil {
		return 0, 0
	}
	told, bad := l.Told.tell(l.Rule, e)
	switch {
	case bad:
		m.Skipped = append(m.Skipped, Skip{Rule: l.Rule, Reason: SkipLimit})
		return 0, 0
	case told == Unlimited:
		return 0, 0
	}
	return len(l.Tiers) + 1, told
}
