package rules

import (
	"slices"
	"sort"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

// model is one key stepped by the sentences of the rule language, without any thrift: it
// keeps every event that was counted, and counts by looking at all of them.
type model struct {
	set    *Set
	latest event.Micros
	ids    []modelID
	limits map[*Limit]*modelLimit
	above  []Above // of the last step
	left   []Left  // the same
}

type modelID struct {
	id    string
	stamp event.Micros
}

type modelLimit struct {
	*Limit
	latest  event.Micros
	counted []modelEvent
	block   *verdict.Verdict // the last one, as it was published last
}

// modelEvent is an amount, and from when to when it counts.
type modelEvent struct {
	from, to event.Micros
	n        event.Decimal
}

func newModel(s *Set) *model {
	return &model{set: s, latest: event.NoTime, limits: map[*Limit]*modelLimit{}}
}

func (m *model) step(in Input) (repeat bool, late int, changes []verdict.Verdict) {
	m.above, m.left = nil, nil
	latest := max(m.latest, in.At)
	recent := m.ids[max(0, len(m.ids)-m.set.RecentIDs):]
	for _, r := range recent {
		if in.ID != "" && r.id == in.ID && latest-r.stamp < m.set.RecentFor {
			return true, 0, nil
		}
	}
	if in.ID != "" {
		m.ids = append(m.ids, modelID{in.ID, latest})
	}
	m.latest = latest
	for _, hit := range in.Hits {
		l := m.limits[hit.Limit]
		if l == nil {
			l = &modelLimit{Limit: hit.Limit, latest: event.NoTime}
			m.limits[hit.Limit] = l
		}
		if l.isLate(in.At) {
			late++
			continue
		}
		l.latest = max(l.latest, in.At)
		from, to := l.counts(in.At)
		l.counted = append(l.counted, modelEvent{from, to, hit.Amount})
		if v := l.judgeModel(in, hit.Amount); v != nil {
			changes = append(changes, *v)
		}
		if hit.Amount > 0 && l.countAround(in.At) > l.Limit.Limit {
			m.above = append(m.above, l.aboveAt(in.At))
		}
		if hit.Amount > 0 && l.Quota && !l.ended(in.At) {
			m.left = append(m.left, Left{Limit: l.Limit, Of: l.Limit.Limit, Count: l.count(l.latest), Since: l.latest, Until: l.leftUntil()})
		}
	}
	return false, late, changes
}

// leftUntil is until when the count of the latest time says what is left.
func (l *modelLimit) leftUntil() event.Micros {
	switch l.Window.Kind {
	case windows.Sliding:
		return l.latest + l.Window.Per
	case windows.Hopping:
		return l.lastHop(l.latest) + l.Window.Every
	}
	_, end := l.bounds(l.latest)
	return end
}

// countAround is the count of the window that an event at this moment went into.
func (l *modelLimit) countAround(at event.Micros) event.Decimal {
	if l.Window.Kind == windows.Hopping {
		return l.greatest(at, false)
	}
	if l.ended(at) {
		_, end := l.bounds(at)
		return l.count(end - 1)
	}
	return l.count(l.latest)
}

// aboveAt is an event that counted above the limit, and how long before it a block began.
func (l *modelLimit) aboveAt(at event.Micros) Above {
	a := Above{Limit: l.Limit, Since: event.NoTime}
	if l.block != nil && l.latest < l.block.Until && !l.ended(at) {
		a.Since = max(0, at-l.block.Since)
	}
	return a
}

// judgeModel is 'When a verdict is issued'.
func (l *modelLimit) judgeModel(in Input, n event.Decimal) *verdict.Verdict {
	if n == 0 {
		return nil // adds nothing
	}
	count := l.count(l.latest)
	quota := l.Rule.Then.UntilReset
	if l.block != nil && l.latest < l.block.Until { // in force
		if end := l.below(); quota && end > l.block.Until {
			l.block.Until = (end + l.Grain - 1) / l.Grain * l.Grain
			l.block.Count = count
			return l.block
		}
		return nil
	}
	over := count > l.Limit.Limit || quota && count == l.Limit.Limit
	if l.Window.Kind == windows.Hopping {
		count = l.greatest(in.At, quota)
		over = count > l.Limit.Limit || quota && count == l.Limit.Limit
	} else if l.ended(in.At) { // only the window that it went into is judged
		_, end := l.bounds(in.At)
		count = l.count(end - 1)
		over = !quota && count > l.Limit.Limit
	}
	if !over {
		return nil
	}
	until := l.latest + l.Rule.Then.step(1)
	if quota {
		until = l.below()
	}
	l.block = &verdict.Verdict{Rule: l.Name, Count: count, Since: l.latest, Until: until, Cause: in.Cause}
	return l.block
}

// greatest is the greatest count of the hopping windows that hold an event: of a quota, of those that hold
// the latest time, too; else, of those that have not ended for longer than they are held.
func (l *modelLimit) greatest(at event.Micros, quota bool) (count event.Decimal) {
	w := &l.Window
	for start := l.lastHop(at); start > at-w.Per; start -= w.Every {
		end := start + w.Per
		if quota && l.latest >= end || l.latest >= end+min(w.Per, w.Lateness) {
			continue
		}
		var sum event.Decimal
		for _, e := range l.counted {
			if start <= e.from && e.from < end {
				sum = sum.Plus(e.n)
			}
		}
		count = max(count, sum)
	}
	return count
}

// lastHop returns the beginning of the last hopping window that holds a moment.
func (l *modelLimit) lastHop(at event.Micros) event.Micros {
	w := &l.Window
	return at - ((at-w.Offset)%w.Every+w.Every)%w.Every
}

// isLate is 'Time', on what is held.
func (l *modelLimit) isLate(at event.Micros) bool {
	if l.latest == event.NoTime || at > l.latest {
		return false
	}
	if l.Window.Kind == windows.Hopping {
		return l.latest >= l.lastHop(at)+l.Window.Per+min(l.Window.Per, l.Window.Lateness)
	}
	if l.Window.Kind == windows.Sliding {
		return at <= l.latest-l.Window.Per
	}
	start, _ := l.bounds(l.latest)
	before, _ := l.bounds(start - 1)
	held := l.latest < start+min(start-before, l.Window.Lateness)
	return at < start && (at < before || !held)
}

func (l *modelLimit) ended(at event.Micros) bool {
	switch l.Window.Kind {
	case windows.Sliding:
		return false
	case windows.Hopping:
		return l.latest >= l.lastHop(at)+l.Window.Per
	}
	start, _ := l.bounds(l.latest)
	return at < start
}

// bounds are the edges of the tumbling window or civil unit that holds t.
func (l *modelLimit) bounds(t event.Micros) (from, to event.Micros) {
	w := &l.Window
	if w.Kind == windows.Tumbling {
		for k := (t - w.Offset) / w.Per; ; k-- {
			if from = w.Offset + k*w.Per; from <= t {
				return from, from + w.Per
			}
		}
	}
	zone := w.Zone
	if zone == nil {
		zone = time.UTC
	}
	c := t.Time().In(zone)
	switch w.Unit {
	case windows.Hour:
		past := time.Duration(c.Minute())*time.Minute + time.Duration(c.Second())*time.Second + time.Duration(c.Nanosecond())
		from = event.FromTime(c.Add(-past))
		return from, from + event.Hour
	case windows.Day:
		day := func(n int) event.Micros {
			return event.FromTime(time.Date(c.Year(), c.Month(), c.Day()+n, 0, 0, 0, 0, zone))
		}
		return day(0), day(1)
	}
	panic("the model knows no such unit")
}

// counts says from when to when an event at this moment counts.
func (l *modelLimit) counts(at event.Micros) (from, to event.Micros) {
	w := &l.Window
	switch {
	case w.Kind == windows.Hopping:
		return at, l.lastHop(at) + w.Per
	case w.Kind != windows.Sliding:
		return l.bounds(at)
	case w.Exact:
		return at, at + w.Per
	default:
		return at, (at/w.Resolution+1)*w.Resolution + w.Per
	}
}

// count returns the count at t, which is not before the latest time unless it is in an ended window.
func (l *modelLimit) count(t event.Micros) event.Decimal {
	var sum event.Decimal
	for _, e := range l.counted {
		if e.from <= t && t < e.to {
			sum = sum.Plus(e.n)
		}
	}
	return sum
}

// below is the first moment from which the count is below the limit if nothing more happens.
func (l *modelLimit) below() event.Micros {
	if l.count(l.latest) < l.Limit.Limit {
		return l.latest
	}
	var ends []event.Micros
	for _, e := range l.counted {
		ends = append(ends, e.to)
	}
	slices.Sort(ends)
	i := sort.Search(len(ends), func(i int) bool {
		return ends[i] > l.latest && l.count(ends[i]) < l.Limit.Limit
	})
	return ends[i]
}
