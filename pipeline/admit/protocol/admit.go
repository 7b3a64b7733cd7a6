package protocol

import (
	"cmp"
	"math"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// Ask asks for permits for one key, under all strict limits that the key has.
type Ask struct {
	Partition int32 // that owns the key
	Key       string
	IDs       []string // one a permit, all different; more than one for permits ahead
	Before    event.Micros
	Version   uint64 // of the rules that Wants are of
	Wants     []Want
	Exempt    bool
	Again     bool // it was asked before, and not answered: that question may still arrive

	// Named says that the caller chose the ids, and may choose them again. An id whose action was
	// counted is then refused for so long as Remember says: the event of another action would be taken
	// for a repeat, and count nowhere.
	Named    bool
	Remember event.Micros
	Renews   bool // the ids were made by an enforcer, for permits that it was granted: none is granted anew
}

// Status is the outcome of a question to a shard.
type Status uint8

// The answers.
const (
	Granted    Status = iota // at least one permit
	Denied                   // the limit is reached
	TooMany                  // the key has MaxPermits
	Late                     // Before is over
	Spent                    // one of the ids has ended
	Doubt                    // the shard may not grant now
	Outdated                 // other rules are in force: see Answer.Version
	OutOfRange               // the Ends of a limit do not reach to Answer.Now
	Taken                    // an id is that of a permit for something else
	Ahead                    // the shard's clock is far ahead of the publisher's: one of them is wrong
)

// Answer is a shard's answer to a question.
type Answer struct {
	Status  Status
	Now     event.Micros // the key's clock
	Clock   event.Micros // the shard's
	Version uint64
	IDs     []string     // those that were granted
	At      event.Micros // when
	Decides int          // the place in Wants of the limit that has the least room
	Used    event.Decimal
	Limit   event.Decimal
	RetryAt event.Micros // when the amount may fit, or a spent id be granted; 0: when permits end, which nobody knows
	ResetAt event.Micros // when nothing counts any more, unless more is counted
}

// Admit grants permits, or says why not.
func (m *Memory) Admit(p Process, q *Ask) Answer {
	clock := m.enter(p)
	k := m.key(q.Key, q.Partition)
	part := m.partition(q.Partition)
	a := Answer{Now: k.now(clock), Clock: clock, Version: part.Version, Decides: -1}
	switch granted := k.permits(q.IDs); {
	case q.Before < clock && !off.spent:
		a.Status = Late
	case k.spentUntil(q.IDs, clock) > 0:
		a.Status, a.RetryAt = Spent, k.spentUntil(q.IDs, clock)
	case slices.ContainsFunc(granted, func(p *Permit) bool { return !p.isFor(q) }):
		a.Status = Taken
	case len(granted) > 0:
		a.At = granted[0].At
		for _, p := range granted {
			k.renew(p, q, a.Now)
			a.IDs = append(a.IDs, p.ID)
		}
	case q.Again && clock < m.Was && !off.setBack:
		a.Status = Late // by the clock before it was set back, that may be: its permit may be over already
	case !part.grants(q, clock):
		a.Status = Doubt
	case clock > part.Beat+MaxAhead: // of a publisher that is away the last heartbeat is old, too
		a.Status = Ahead
	case part.Version != q.Version && !off.version:
		a.Status = Outdated
	case q.Renews:
		a.Status = Spent
	default:
		m.decide(k, q, part, &a)
	}
	return a
}

// renew lets what is in flight take its whole time again, and notes that the permit was asked for again.
func (k *Key) renew(p *Permit, q *Ask, now event.Micros) {
	renewed := *p
	renewed.Again, renewed.Remember = p.Again || q.Again, max(p.Remember, q.Remember)
	renewed.Parts = slices.Clone(p.Parts)
	for i := range renewed.Parts {
		part := &renewed.Parts[i]
		for j := range q.Wants {
			if w := &q.Wants[j]; part.Kind == InFlight && w.Name == part.Name {
				part.Hold = max(part.Hold, now+w.Hold)
			}
		}
	}
	k.Permits[slices.Index(k.Permits, p)] = &renewed
}

func (k *Key) permits(ids []string) (found []*Permit) {
	for _, id := range ids {
		if p := k.permit(id); p != nil {
			found = append(found, p)
		}
	}
	return found
}

// isFor tells whether a permit is what a question asks for. A permit that is in flight may be of rules that
// have changed since: one limit is enough.
func (p *Permit) isFor(q *Ask) bool {
	flies, one := false, false
	for i := range q.Wants {
		w := &q.Wants[i]
		part := p.part(&w.Limit)
		switch {
		case w.Kind == InFlight:
			flies, one = true, one || part != nil
		case q.Remember > 0 && (part == nil || part.Amount < w.Amount):
			return false
		}
	}
	return one || !flies
}

// spentUntil is until when the first of the ids that has ended may not be granted again; 0: none has.
func (k *Key) spentUntil(ids []string, clock event.Micros) event.Micros {
	for _, id := range ids {
		if until, ok := k.Spent[id]; ok && until >= clock {
			return until
		}
	}
	return 0
}

// decide grants as many permits as fit.
func (m *Memory) decide(k *Key, q *Ask, part *Partition, a *Answer) {
	parts, ok := partsOf(q, a.Now)
	if !ok {
		a.Status = OutOfRange
		return
	}
	room := len(q.IDs)
	least := math.Inf(1)
	for i := range q.Wants {
		w := &q.Wants[i]
		if k.Level.isGone(&w.Limit, part.Version) {
			*a = Answer{Status: Doubt, Now: a.Now, Clock: a.Clock, Version: a.Version, Decides: -1}
			return
		}
		used, limit := k.used(&w.Limit, a.Now, part.Settled), k.threshold(w, a.Clock)
		fits := int(min(floor((limit-used)/float64(w.Amount)), float64(len(q.IDs))))
		if fits < 1 {
			a.RetryAt = max(a.RetryAt, k.fitsAt(w, used, limit, a.Now, part.Settled))
		}
		a.ResetAt = max(a.ResetAt, k.resetAt(&w.Limit, used, a.Now, part.Settled))
		// Limits of one key may count different things, such as money and tokens: the room is in requests like this.
		if left := (limit - used) / float64(w.Amount); left < least {
			least, a.Decides, a.Limit, a.Used = left, i, event.Decimal(limit), event.Decimal(math.Ceil(used))
		}
		room = max(0, min(room, fits))
	}
	exempt := q.Exempt || k.Level != nil && k.Level.Exempt > a.Now
	switch {
	case exempt:
		room, a.RetryAt = len(q.IDs), 0
	case room == 0:
		a.Status = Denied
	case len(k.Permits) >= MaxPermits:
		a.Status = TooMany
		room = 0
	default:
		room = min(room, MaxPermits-len(k.Permits))
	}
	if room == 0 {
		return
	}
	a.IDs, a.At = q.IDs[:room], a.Now
	k.Clock = a.Now
	if exempt {
		return // it holds nothing
	}
	for _, id := range a.IDs {
		k.insert(&Permit{ID: id, At: a.Now, Again: q.Again, Remember: q.Remember, Parts: parts})
	}
	m.keep(q.Key, k, a.Clock)
}

// fitsAt returns the moment at which a want that does not fit now would, if no more were counted; 0 when nobody
// knows, or never.
func (k *Key) fitsAt(w *Want, used, limit float64, now, settled event.Micros) event.Micros {
	amount := float64(w.Amount)
	switch {
	case amount > limit || w.Kind == InFlight:
		return 0
	case w.Kind == Bucket:
		return now + event.Micros(math.Ceil((used+amount-limit)/float64(w.Rate)*float64(w.Per))) + 1
	}
	for _, step := range k.steps(&w.Limit, now, settled) {
		if used -= float64(step.Amount); used+amount <= limit {
			return step.Until
		}
	}
	return 0
}

// resetAt returns the moment at which nothing counts any more under a limit; 0 when nobody knows.
func (k *Key) resetAt(l *Limit, used float64, now, settled event.Micros) (at event.Micros) {
	switch l.Kind {
	case Bucket:
		return now + event.Micros(math.Ceil(used/float64(l.Rate)*float64(l.Per)))
	case Window:
		for _, step := range k.steps(l, now, settled) {
			at = max(at, step.Until)
		}
	}
	return at
}

// steps lists the amounts that count now, counted or under way, in the order in which they fall out. In a window that
// begins with an event what is under way falls with what was counted; where nothing was it begins one itself.
func (k *Key) steps(l *Limit, now, settled event.Micros) (steps []Step) {
	counted := event.Micros(0)
	if s := k.Level.section(l); s != nil {
		for _, step := range s.Steps {
			if step.Until > now {
				steps, counted = append(steps, step), step.Until
			}
		}
	}
	for _, p := range k.Permits {
		part, until := l.weighs(p, now, settled)
		switch {
		case part == nil:
			continue
		case l.Lasts > 0 && counted > 0:
			until = counted
		case l.Lasts > 0:
			until -= l.Keeps - l.Lasts
		}
		steps = append(steps, Step{until, part.Amount})
	}
	slices.SortFunc(steps, func(a, b Step) int { return cmp.Compare(a.Until, b.Until) })
	return steps
}

// partsOf lists the amounts of a permit granted now.
func partsOf(q *Ask, now event.Micros) (parts []Part, ok bool) {
	for i := range q.Wants {
		w := &q.Wants[i]
		until, ok := w.until(now)
		if !ok {
			return nil, false
		}
		parts = append(parts, Part{Name: w.Name, Kind: w.Kind, Amount: w.Amount, Until: until, Hold: now + w.Hold, Returns: w.Returns})
	}
	return parts, true
}

// threshold returns the number that a limit's use is compared with.
func (k *Key) threshold(w *Want, clock event.Micros) float64 {
	if w.Threshold >= 0 {
		return float64(w.Threshold)
	}
	if s := k.Level.section(&w.Limit); s != nil && !k.Level.over(clock) {
		for _, t := range w.Tiers {
			if t.ID == s.Tier {
				return float64(t.Threshold)
			}
		}
	}
	return float64(w.Lowest)
}

// Cancel ends permits whose actions do not happen, or have no events.
func (m *Memory) Cancel(p Process, partition int32, key string, ids []string) event.Micros {
	clock := m.enter(p)
	k := m.key(key, partition)
	for _, id := range ids {
		k.remove(id)
		k.spend(id, clock, SpentFor) // nothing of it was counted
	}
	m.keep(key, k, clock)
	return clock
}
