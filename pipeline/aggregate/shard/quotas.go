package shard

import (
	"cmp"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// What keys have left under limits with `quota` goes to the verdict topic, too, but by another way
// than blocks: it is a hint, and a newer one replaces it. It is in no state, is not written through,
// and has no place in the audit. An event that is read again says again what is left, also where its
// count was applied before. So it is enough that a checkpoint waits for what the events before it
// have left: owners ask for all that waits, see Publish, before they end a checkpoint.

// Quotas publishes what keys have left. It does so at most once a
// second per key and limit, besides checkpoints: at once where it was not published within the last
// second, else when the second has passed. The newest stands for all.
//
// Time is an argument: it is the broker's.
type Quotas struct {
	log     *Log
	byPlace map[quotaPlace]*quota
	waiting int // of them
}

type quotaPlace struct{ key, limit string }

// quota holds the time of the last publication; while waits, left is the next one.
type quota struct {
	at    event.Micros
	waits bool
	left  rules.Left
}

const (
	quotaEvery = event.Second

	// mostQuotas bounds the memory: what else is left is published at each event.
	mostQuotas = 8192
)

// isDue is also true when the clock was set back: it is unknown how late it is.
func (q *quota) isDue(now event.Micros) bool { return now >= q.at+quotaEvery || now < q.at }

// keep takes in what is left, and reports whether that waits; else it is to be published now.
func (m *Quotas) keep(key []byte, left *rules.Left, now event.Micros) (waits bool) {
	q := m.byPlace[quotaPlace{string(key), left.Limit.Name}]
	switch {
	case q == nil:
		m.add(quotaPlace{string(key), left.Limit.Name}, now)
		return false
	case q.isDue(now):
		m.taken(q, now)
		return false
	case !q.waits:
		m.waiting++
	}
	q.waits, q.left = true, *left
	return true
}

// taken notes that what waits is published, or that something newer is.
func (m *Quotas) taken(q *quota, now event.Micros) {
	if q.waits {
		m.waiting--
	}
	*q = quota{at: now}
}

// add makes room, if need be, by forgetting when something else was published last.
func (m *Quotas) add(place quotaPlace, now event.Micros) {
	const looks = 8 // a map's order is random
	if m.byPlace == nil {
		m.byPlace = map[quotaPlace]*quota{}
	}
	if len(m.byPlace) >= mostQuotas {
		looked := 0
		for other, q := range m.byPlace {
			if !q.waits {
				delete(m.byPlace, other)
				break
			}
			if looked++; looked == looks {
				return
			}
		}
	}
	m.byPlace[place] = &quota{at: now}
}

// forget drops all of a key.
func (m *Quotas) forget(key string) {
	for place, q := range m.byPlace {
		if place.key == key {
			m.taken(q, q.at)
			delete(m.byPlace, place)
		}
	}
}

// due returns what is due, or all that waits. When something was published last is forgotten when it
// no longer matters.
func (m *Quotas) due(now event.Micros, all bool) (places []quotaPlace) {
	for place, q := range m.byPlace {
		switch {
		case q.waits && (all || q.isDue(now)):
			places = append(places, place)
		case !q.waits && q.isDue(now):
			delete(m.byPlace, place)
		}
	}
	slices.SortFunc(places, func(a, b quotaPlace) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.limit, b.limit))
	})
	return places
}

// noteLeft publishes what is left of a key, or lets it wait. What is over already is left out: an
// earlier one has run out, too.
func (m *Quotas) noteLeft(key []byte, all []rules.Left, clock Clock) {
	if len(all) == 0 || m.log.cfg.NoLevels {
		return
	}
	now := m.quotaTime(clock)
	for i := range all {
		left := &all[i]
		if !left.Over() && left.Until <= now || m.keep(key, left, now) {
			continue
		}
		m.publishLeft(string(key), left)
	}
}

// quotaTime is the broker's time, as far as it is known.
func (m *Quotas) quotaTime(clock Clock) event.Micros { return max(clock.Broker, m.log.Time(clock)) }

// leftByCommand publishes at once what a command leaves of a key. What waits of the key gives way.
func (m *Quotas) leftByCommand(key string, kind rules.CommandKind, all []rules.Left, at event.Micros) {
	if kind == rules.CommandForget {
		m.forget(key)
	}
	for i := range all {
		place := quotaPlace{key, all[i].Limit.Name}
		if q := m.byPlace[place]; q != nil {
			m.taken(q, at)
		} else {
			m.add(place, at)
		}
		m.publishLeft(key, &all[i])
	}
}

// Waiting counts the remainders that wait to be published.
func (m *Quotas) Waiting() int { return m.waiting }

// DueQuotas are the next work of Publish.
type DueQuotas struct{ places []quotaPlace }

// Any reports whether there is something to publish.
func (q *DueQuotas) Any() bool { return len(q.places) > 0 }

// Due returns what is due now, or all that waits.
func (m *Quotas) Due(all bool, clock Clock) DueQuotas {
	return DueQuotas{m.due(m.quotaTime(clock), all)}
}

// Publish publishes the first of what was due, and reports whether there is more.
func (m *Quotas) Publish(due *DueQuotas, clock Clock) (more bool) {
	if len(due.places) == 0 {
		return false
	}
	place := due.places[0]
	due.places = due.places[1:]
	if q := m.byPlace[place]; q != nil && q.waits {
		left := q.left
		m.taken(q, m.quotaTime(clock))
		m.publishLeft(place.key, &left)
	}
	return len(due.places) > 0
}

// publishLeft asks for what is left in the verdict topic. Its Seq is that record's offset, which
// readers know.
func (m *Quotas) publishLeft(key string, left *rules.Left) {
	dims, err := event.ParseKey([]byte(key))
	if err != nil {
		return // not reached: keys of states are well-formed
	}
	v := left.Verdict(dims)
	rec := Append{Key: verdict.AppendRecordKey(nil, &v), Value: verdict.AppendJSON(nil, &v), Urgent: true}
	rec.Ack = &Ack{left: &v, record: rec}
	m.log.out.Verdicts = append(m.log.out.Verdicts, rec)
}
