package rules

import (
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/when"
)

// Requests finds the limits that a request may count under, before its action. It keeps buffers between
// requests, so that it allocates nothing but what `when` predicates need; each goroutine has one of its own.
type Requests struct {
	// Skipped are the rules that the last Wants left out although they are for such requests, since
	// their amount is not known, or none that they count.
	Skipped []Skip

	apis   apiCache
	found  []apiEntry[*Rule] // of the last Concern
	keys   eventKeys
	shapes []int // of each rule: the place of its key in keys
	wants  []Want
	text   []byte // of an exemption

	predicates *when.Evaluator
}

// Want is a limit that a request may count under, and what it asks of it.
type Want struct {
	Limit  *Limit
	Key    []byte        // the record-key text; valid until the next Wants
	Hash   uint32        // of a strict rule: what the key's partition follows from, as Work.Hash
	Amount event.Decimal // more than zero: at most so much will count

	// Threshold is the number that the limit's counts are compared with: of the tier that the request has. It may be
	// Unlimited. With AnyTier the tier is not known: that of the key's latest event holds, and where that is not
	// known, either, Threshold, which is the lowest one that the request may have.
	Threshold event.Decimal
	AnyTier   bool

	Exempt bool // the rule file says that the key is exempt: the request counts, and is let in
}

// requestSlots bounds the APIs whose rules a Requests remembers.
const requestSlots = 128

// NewRequests returns a Requests for some of a Set's rules: Set.Strict or Set.Instance.
func NewRequests(rules []*Rule) *Requests {
	q := &Requests{predicates: when.NewEvaluator()}
	index := newAPIIndex[*Rule]()
	var dims [][]string
	for i, r := range rules {
		r.indexInto(index, i)
		place := slices.IndexFunc(dims, func(d []string) bool { return slices.Equal(d, r.Shape.Dims) })
		if place < 0 {
			place = len(dims)
			dims = append(dims, r.Shape.Dims)
		}
		q.shapes = append(q.shapes, place)
		q.predicates.Know(r.match.when)
		q.predicates.KnowParts(r.match.parts)
		for _, l := range r.Limits {
			for t := range l.Tiers {
				q.predicates.Know(l.Tiers[t].when)
				q.predicates.KnowParts(l.Tiers[t].parts)
			}
		}
	}
	q.apis, q.keys.of = newAPICache(index, requestSlots), make([]shapeKey, len(dims))
	return q
}

// Wants returns the limits that a request may count under, in the order of the rules. e is the event that
// is to follow, as far as it is known: a strict rule takes what e lacks to match, at is event.NoTime when
// the event's time is not known; for a rule of ScopeInstance e is all there is. Cost, and an attribute that
// is summed, are upper bounds of what the event will have. What is returned, and Skipped, hold until the
// next Wants.
//
// A request without a dimension of a rule's key is not for that rule.
func (q *Requests) Wants(e *event.Event, at event.Micros) []Want {
	q.Concern(e.API)
	return q.WantsConcerned(e, at)
}

// Concern reports whether there is a rule for an API, whatever else the rule asks for.
func (q *Requests) Concern(api string) bool {
	q.found = q.apis.find(api)
	return len(q.found) > 0
}

// WantsConcerned is Wants for a request to the API that the last Concern was asked for, by which it saves
// looking for the rules again.
func (q *Requests) WantsConcerned(e *event.Event, at event.Micros) []Want {
	entries := q.found
	q.Skipped, q.wants = q.Skipped[:0], q.wants[:0]
	if len(entries) == 0 || e.Cost < 0 {
		return q.wants
	}
	q.keys.event++
	q.predicates.Next()
	for i := range entries {
		entry := &entries[i]
		r := entry.rule
		key := &q.keys.of[q.shapes[entry.order]]
		if !entry.apiOnly && !r.match.may(e) {
			continue
		}
		if key.event != q.keys.event {
			q.keys.make(key, e, r.Shape)
		}
		if !key.there || !entry.apiOnly && !q.holds(r, e, at) {
			if key.long {
				q.Skipped = append(q.Skipped, Skip{Rule: r, Reason: SkipKey})
			}
			continue
		}
		if r.Strict != nil && !r.tellsLimits(e) {
			q.Skipped = append(q.Skipped, Skip{Rule: r, Reason: SkipLimit})
			continue
		}
		amount := entry.unit
		if r.Count != CountEvents || e.Cost != event.One || r.match.byOutcome != nil {
			var reason string
			if amount, reason = r.amount(e, entry.weight*r.match.byOutcome.before(e.Outcome)); reason != "" {
				q.Skipped = append(q.Skipped, Skip{Rule: r, Reason: reason})
				continue
			}
		}
		if amount > 0 {
			q.want(r, e, at, key.text, amount)
		}
	}
	return q.wants
}

// want adds a rule's limits.
func (q *Requests) want(r *Rule, e *event.Event, at event.Micros, key []byte, amount event.Decimal) {
	var hash uint32
	if r.Strict != nil {
		if hash = event.Murmur2(key); r.Shape.HasUID {
			hash = event.Murmur2(e.UID)
		}
	}
	exempt := r.exemptKeys != nil && q.isExempt(r, e, at)
	for _, l := range r.Limits {
		if l.Shadow { // a candidate, which decides nothing
			continue
		}
		q.wants = append(q.wants, Want{Limit: l, Key: key, Hash: hash, Amount: amount, Threshold: l.threshold(), Exempt: exempt})
		w := &q.wants[len(q.wants)-1]
		if l.asks() {
			w.Threshold, w.AnyTier = q.tier(l, e, at)
		}
		if len(l.overrides) > 0 {
			q.override(w, at)
		}
	}
}

// may reports whether outcome and attributes can be what the rule wants: what a strict rule does not know
// yet can.
func (rm *ruleMatch) may(e *event.Event) bool {
	if !rm.strict {
		return rm.fits(e)
	}
	return (e.Outcome == "" || rm.takes(e.Outcome)) && rm.mayHave(e)
}

// mayHave reports whether attributes can be what the rule wants: what an event lacks can.
func (rm *ruleMatch) mayHave(e *event.Event) bool {
	for i := range rm.attrs {
		v, ok := e.Attr(rm.attrs[i].name)
		if ok && !rm.attrs[i].has(v.Text) {
			return false
		}
	}
	return true
}

// holds evaluates a rule's `when`.
func (q *Requests) holds(r *Rule, e *event.Event, at event.Micros) bool {
	switch m := &r.match; {
	case m.when == nil:
		return true
	case m.parts != nil:
		return q.predicates.May(m.parts, e, at) != when.No
	default:
		return q.certain(r, m.when, e, at)
	}
}

// certain evaluates a predicate for a request that is all there is; one that fails does not hold.
func (q *Requests) certain(r *Rule, p *when.Predicate, e *event.Event, at event.Micros) bool {
	holds, ok := q.predicates.Holds(p, e, at)
	if !ok {
		q.Skipped = append(q.Skipped, Skip{Rule: r, Reason: SkipWhen})
	}
	return holds
}

// tier is the limit of the request's tier, or the lowest one that it may have.
func (q *Requests) tier(l *Limit, e *event.Event, at event.Micros) (limit event.Decimal, any bool) {
	limit = Unlimited // none yet
	for i := range l.Tiers {
		t := &l.Tiers[i]
		answer := when.No
		if t.parts != nil {
			answer = q.predicates.May(t.parts, e, at)
		} else if q.certain(l.Rule, t.when, e, at) {
			answer = when.Yes
		}
		if answer == when.No {
			continue
		}
		limit = lowest(limit, t.Limit)
		if answer == when.Yes {
			return limit, any
		}
		any = true
	}
	otherwise := l.threshold()
	if l.Told != nil {
		if told, _ := l.Told.tell(l.Rule, e); told != Unlimited {
			otherwise = told
		}
	}
	return lowest(limit, otherwise), any
}

// override gives a key the limit of its own. One that ends some time counts where the time is not known
// only if it is lower.
func (q *Requests) override(w *Want, at event.Micros) {
	own := w.Limit.overrides[string(w.Key)]
	switch {
	case own == nil || own.Until != event.NoTime && at != event.NoTime && at >= own.Until:
	case own.Until == event.NoTime || at != event.NoTime:
		w.Threshold, w.AnyTier = own.Limit, false
	case own.Limit != w.Threshold && lowest(own.Limit, w.Threshold) == own.Limit:
		w.Threshold, w.AnyTier = own.Limit, false
	}
}

// isExempt reports whether the rule file exempts the request's key.
func (q *Requests) isExempt(r *Rule, e *event.Event, at event.Micros) bool {
	for i := range r.exemptKeys.groups {
		g := &r.exemptKeys.groups[i]
		q.text = q.text[:0]
		there := true
		for i := range g.parts {
			if q.text, there = q.keys.appendDim(q.text, e, &g.parts[i]); !there {
				break
			}
		}
		if !there {
			continue
		}
		if until, listed := g.until[string(q.text)]; listed && spares(until, at) {
			return true
		}
		if g.networks.none() {
			continue
		}
		for _, dim := range r.Shape.Dims {
			if in, ok := networkUnder(dim, e.IP); ok && g.networks.cover(q.text, in, at) {
				return true
			}
		}
	}
	return false
}
