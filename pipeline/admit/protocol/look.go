package protocol

import (
	"math"

	"github.com/tallygate/tallygate/event"
)

// Look describes a key's position under one limit, for people.
type Look struct {
	Level     event.Decimal // what is counted
	Held      event.Decimal // what permits hold that weigh now
	Used      event.Decimal // both: of a bucket it may be less than their sum
	Threshold event.Decimal // what Used is compared with

	Permits int          // that hold something under the limit, and weigh now
	Oldest  event.Micros // when the first of them was granted; 0: there is none
	Lost    event.Micros // when the first of them is lost, unless its action tells how it ended; 0: there is none

	ResetAt event.Micros // when nothing counts any more, unless more is counted; 0: nobody knows, or nothing does
}

// Seen is the result of Look.
type Seen struct {
	Now    event.Micros // the key's clock
	Clock  event.Micros // the shard's
	Grants bool         // permits may be granted now
	Exempt bool         // the key holds nothing under these limits
	Limits []Look       // of each want
}

// Look tells where a key stands, as a question for its Wants would find it, and changes nothing.
func (m *Memory) Look(p Process, q *Ask) Seen {
	c := m.Copy()
	clock := c.enter(p)
	k, part := c.key(q.Key, q.Partition), c.partition(q.Partition)
	seen := Seen{Now: k.now(clock), Clock: clock, Grants: part.grants(q, clock) && clock <= part.Beat+MaxAhead}
	seen.Exempt = k.Level != nil && k.Level.Exempt > seen.Now
	for i := range q.Wants {
		seen.Limits = append(seen.Limits, k.look(&q.Wants[i], clock, seen.Now, part.Settled))
	}
	return seen
}

func (k *Key) look(w *Want, clock, now, settled event.Micros) Look {
	used := k.used(&w.Limit, now, settled)
	counted := Key{Level: k.Level, Clock: k.Clock}
	l := Look{
		Level: whole(counted.used(&w.Limit, now, settled)), Used: whole(used),
		Threshold: event.Decimal(k.threshold(w, clock)),
	}
	if used > 0 {
		l.ResetAt = k.resetAt(&w.Limit, used, now, settled)
	}
	for _, p := range k.Permits {
		part, _ := w.weighs(p, now, settled)
		if part == nil {
			continue
		}
		l.Permits++
		l.Held = l.Held.Plus(part.Amount)
		if l.Oldest == 0 {
			l.Oldest = p.At
		}
		if l.Lost == 0 || part.Hold < l.Lost {
			l.Lost = part.Hold
		}
	}
	return l
}

// whole rounds up, as answers do.
func whole(x float64) event.Decimal { return event.Decimal(math.Ceil(x)) }
