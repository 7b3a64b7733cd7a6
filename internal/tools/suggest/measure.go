package suggest

import (
	"cmp"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/windows"
)

// exactTo is the greatest limit of which a sliding window keeps the times themselves. With a higher one it counts by
// panes, and may count more: so counts are noted in both forms, and each limit is looked up in its own.
const exactTo = windows.ExactLimit * event.One

// measure collects the counts under one limit: the highest of each key, and how often each was there.
type measure struct {
	limit  *rules.Limit
	sought rules.Sought
	keys   map[string]*keyCounts
	// After each event that added something.
	counts histogram
	// The same by exact times; only of sought.Exact.
	exact histogram
	// Keys have no uid: who stands behind them is noted.
	users bool
	bytes int64

	// The keys' highest counts, the greatest first: see finish.
	byCount, byExact []event.Decimal
}

// keyCounts collects a key's counts. Its size is bounded, so that the number of keys alone decides about memory. All of
// it but users is exact, in whatever order the events come.
type keyCounts struct {
	// The greatest count of a window.
	high, highExact event.Decimal
	// When it was counted first.
	at          event.Micros
	total       event.Decimal
	events      int
	first, last event.Micros
	// A bit for each hour of the day, in UTC, in which something was counted.
	hours uint32
	users userSketch
}

// keyBytes is about how much memory a keyCounts takes, with its place in the map.
const keyBytes = 200

func newMeasure(l *rules.Limit, sought rules.Sought) *measure {
	return &measure{limit: l, sought: sought, keys: map[string]*keyCounts{}, users: !l.Rule.Shape.HasUID}
}

// key finds a key, or makes one. Its text is copied: the engine's is valid for a step only.
func (m *measure) key(key []byte) *keyCounts {
	k := m.keys[string(key)]
	if k == nil {
		k = &keyCounts{first: event.MaxTime, last: event.MinTime}
		m.keys[string(key)] = k
		m.bytes += keyBytes + int64(len(key))
	}
	return k
}

// count notes a count after an event. uid is a hash, so that nobody's name is kept who is not in a key.
func (m *measure) count(key []byte, c *rules.Counted, at event.Micros, uid uint64) {
	k := m.key(key)
	if c.Count > k.high {
		k.high, k.at = c.Count, at
	}
	k.total = k.total.Plus(c.Amount)
	k.events++
	k.first, k.last = min(k.first, at), max(k.last, at)
	k.hours |= 1 << uint(((at%event.Day+event.Day)%event.Day)/event.Hour)
	m.counts.add(c.Count)
	if m.users {
		m.bytes += k.users.add(uid)
	}
}

// countExact notes a count by exact times. All else about the event the other engine tells, in the same step.
func (m *measure) countExact(key []byte, count event.Decimal) {
	k := m.key(key)
	k.highExact = max(k.highExact, count)
	m.exact.add(count)
}

// finish sorts the counts, so that limits can be looked up. Nothing is counted after it.
func (m *measure) finish() {
	m.byCount, m.byExact = m.byCount[:0], m.byExact[:0]
	for _, k := range m.keys {
		m.byCount, m.byExact = append(m.byCount, k.high), append(m.byExact, k.highExact)
	}
	falling := func(a, b event.Decimal) int { return cmp.Compare(b, a) }
	slices.SortFunc(m.byCount, falling)
	slices.SortFunc(m.byExact, falling)
	m.counts.finish()
	m.exact.finish()
}

// highest is the greatest count of a key, in the form in which a limit of that size counts.
func (m *measure) highest(k *keyCounts) event.Decimal {
	if m.sought.Exact && k.highExact <= exactTo {
		return k.highExact
	}
	return k.high
}

// keysOver counts the keys that got above a limit, by the counts that a rule with this limit would have: a higher limit
// of a sliding window may be one that more keys are over, just above exactTo.
func (m *measure) keysOver(limit event.Decimal) int {
	sorted := m.byCount
	if m.sought.Exact && limit <= exactTo {
		sorted = m.byExact
	}
	n, _ := slices.BinarySearchFunc(sorted, limit, func(count, limit event.Decimal) int {
		if count > limit {
			return -1
		}
		return 1
	})
	return n
}

// eventsOver counts the events after which a key was above a limit.
func (m *measure) eventsOver(limit event.Decimal) int {
	if m.sought.Exact && limit <= exactTo {
		return m.exact.above(limit)
	}
	return m.counts.above(limit)
}

// leastForKeys is the least limit that at most so many keys get above. With the counts in falling order that is the one
// behind so many: all equal to it are not above it.
func (m *measure) leastForKeys(most int) event.Decimal {
	at := func(sorted []event.Decimal) event.Decimal {
		if most >= len(sorted) {
			return 0
		}
		return sorted[most]
	}
	return m.least(at(m.byExact), at(m.byCount))
}

// leastForEvents is the least limit that at most so many events are above.
func (m *measure) leastForEvents(most int) event.Decimal {
	return m.least(m.exact.least(most), m.counts.least(most))
}

// least is the limit that a count asks for, by exact times and by panes.
func (m *measure) least(exact, count event.Decimal) event.Decimal {
	if !m.sought.Exact {
		return m.whole(count)
	}
	if exact <= exactTo {
		return m.whole(exact)
	}
	return m.whole(max(count, exactTo+event.One)) // one that is not above exactTo counts otherwise
}

// whole is the least number that a limit may have and that is not less: a fraction only of sums.
func (m *measure) whole(d event.Decimal) event.Decimal {
	if m.sums() {
		return max(d, 1)
	}
	return max(ceil(d), event.One)
}

func ceil(d event.Decimal) event.Decimal {
	if rest := d % event.One; rest > 0 {
		return d - rest + event.One
	}
	return d
}

func (m *measure) sums() bool { return m.limit.Rule.Count == rules.CountSum }

// most is the greatest number that `check` would let the limit have.
func (m *measure) most() event.Decimal {
	w := &m.limit.Window
	switch {
	case w.Distinct && !w.Estimates():
		return windows.ExactDistinct * event.One
	case m.limit.Rule.Strict != nil:
		return rules.MaxStrict
	}
	return rules.MaxLimit
}
