package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/when"
)

// clock finds a key's tier at a moment at which no event tells it: one whose predicate asks for the time comes into
// force, and goes, by itself. It keeps what it found, since a flood of a blocked key asks with each event.
type clock struct {
	predicates *when.Evaluator
	days       map[toldDay][]shift
}

// toldDay identifies days with the same shifts.
type toldDay struct {
	limit *Limit
	told  uint64       // the tier that the key was told last
	from  event.Micros // the day's first moment, in UTC
}

// shift is a tier that comes into force.
type shift struct {
	at   event.Micros
	tier uint64
}

const (
	maxDays = 1 << 15 // that a clock keeps

	// reach bounds how far ahead tiers are looked for: about 400 days where they follow civil hours, and about 27 where
	// they follow minutes.
	reach = 40_000 // steps

	hourStep   = 15 * event.Minute // civil hours begin and end at quarters of an hour
	minuteStep = event.Minute
)

// stepOf is the limit's clockStep with one more tier.
func (k *KeyLimits) stepOf(t *Tier) event.Micros {
	switch {
	case !t.timed:
		return k.clockStep
	case k.clockStep == minuteStep || when.Fine(t.text):
		return minuteStep
	}
	return hourStep
}

// tierAt returns a key's tier at a moment, given the one that it was told before.
func (c *clock) tierAt(l *Limit, told uint64, at event.Micros) uint64 {
	tier, _ := c.tierUntil(l, told, at)
	return tier
}

// tierUntil is tierAt, and until when at least the key has it.
func (c *clock) tierUntil(l *Limit, told uint64, at event.Micros) (tier uint64, until event.Micros) {
	if l.clockStep == 0 || at < event.MinTime || told != 0 && l.tierNumber(told) == 0 && (l.Told == nil || l.Told.id != told) {
		return told, event.MaxTime
	}
	day := toldDay{l, told, at - (at%event.Day+event.Day)%event.Day}
	shifts, known := c.days[day]
	if !known {
		if len(c.days) >= maxDays || c.days == nil {
			c.days = map[toldDay][]shift{}
		}
		shifts = c.shifts(day)
		c.days[day] = shifts
	}
	until = day.from + event.Day
	for i := len(shifts) - 1; i >= 0; i-- {
		if tier = shifts[i].tier; shifts[i].at <= at {
			break
		}
		until = shifts[i].at
	}
	return tier, until
}

// shifts finds a day's, the first at its beginning. It looks at the ends of steps, and between two at which there are
// different tiers.
func (c *clock) shifts(day toldDay) []shift {
	if c.predicates == nil {
		c.predicates = when.NewEvaluator()
	}
	for i := range day.limit.Tiers {
		if t := &day.limit.Tiers[i]; t.timed {
			c.predicates.KnowParts(t.parts)
		}
	}
	step := day.limit.clockStep
	last := shift{day.from, c.judge(day, day.from)}
	out := []shift{last}
	for from := day.from; from < day.from+event.Day; from += step {
		to := from + step
		for n, at := 0, from; n < maxTiers && c.judge(day, to) != last.tier; n++ {
			at = c.change(day, last.tier, at, to)
			last = shift{at, c.judge(day, at)}
			out = append(out, last)
		}
	}
	return out
}

// change is the first moment behind from, and not behind to, with another tier than at from.
func (c *clock) change(day toldDay, tier uint64, from, to event.Micros) event.Micros {
	for to-from > 1 {
		if mid := from + (to-from)/2; c.judge(day, mid) == tier {
			from = mid
		} else {
			to = mid
		}
	}
	return to
}

// judge finds the tier. What was told last says what attributes do not change: the tiers before that one did not hold.
// Where it takes an event to tell, the key keeps the one that it was told.
func (c *clock) judge(day toldDay, at event.Micros) uint64 {
	l := day.limit
	told := l.tierNumber(day.told)
	c.predicates.Next()
	for i := range l.Tiers {
		t := &l.Tiers[i]
		if !t.timed {
			if told > 0 && i+1 >= told {
				return day.told
			}
			continue
		}
		switch c.predicates.May(t.parts, nil, at) {
		case when.Yes:
			return t.id
		case when.Maybe:
			return day.told
		case when.No:
		}
	}
	if told > 0 && l.Told == nil {
		return 0
	}
	return day.told
}
