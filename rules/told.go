package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// Told is a limit that an attribute of the key's latest event tells.
type Told struct {
	Attr string        // the attribute
	Most event.Decimal // what it tells at most

	id uint64 // what states call it: as a Tier's
}

// tell is the limit that an event tells; Unlimited for none. bad says that the attribute is there, and none.
func (t *Told) tell(r *Rule, e *event.Event) (limit event.Decimal, bad bool) {
	v, ok := e.Attr(t.Attr)
	if !ok {
		return Unlimited, false
	}
	limit = Unlimited
	if v.Kind == event.Number {
		var reason string
		if limit, reason = sumAmount(v.Text, 1, event.One); reason != "" {
			limit = Unlimited
		}
	}
	if limit = min(limit, t.Most); r.Count != CountSum && !limit.Whole() || limit == 0 && !isZero(v.Text) {
		limit = Unlimited
	}
	return limit, limit == Unlimited
}

// isZero tells 0 from a number that is cut to it.
func isZero(text string) bool {
	mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
	return strings.Trim(mantissa, "-0.") == ""
}

// Override is a limit of one key.
type Override struct {
	Key    []event.Dim   // sorted
	Limit  event.Decimal // may be Unlimited
	Until  event.Micros  // by the key's latest time; NoTime: for good
	Reason string        // "": none is given
}

// overrides finds a key's override.
type overrides map[string]*Override // by the key's text

// of returns the limit of a key at a time, as far as it has one of its own. The time is NoTime when it is
// not known: then only what holds for good is.
func (o overrides) of(key []byte, at event.Micros) (limit event.Decimal, has bool) {
	if len(o) == 0 {
		return 0, false
	}
	one := o[string(key)]
	if one == nil || one.Until != event.NoTime && (at == event.NoTime || at >= one.Until) {
		return 0, false
	}
	return one.Limit, true
}

// ends is until when a key has a limit of its own that it has at a time, MaxTime for good; NoTime for none.
func (o overrides) ends(key []byte, at event.Micros) event.Micros {
	switch one := o[string(key)]; {
	case one == nil || one.Until != event.NoTime && at >= one.Until:
		return event.NoTime
	case one.Until == event.NoTime:
		return event.MaxTime
	default:
		return one.Until
	}
}

// KeyLimits are limits that a key may have in the place of the rule's own.
type KeyLimits struct {
	Tiers []Tier // the first whose predicate holds for an event gives the key's limit, else Told does
	Told  *Told  // nil: no attribute tells it

	overrides overrides    // stronger than both; nil: none
	clockStep event.Micros // how often at most a tier comes into force by time alone; 0: never. See clock
}

// Override returns the limit of its own that a key has at a time, whose text is given; it may be Unlimited.
func (k *KeyLimits) Override(key []byte, at event.Micros) (limit event.Decimal, has bool) {
	return k.overrides.of(key, at)
}

// Overrides are the keys with limits of their own, in the order of their texts.
func (k *KeyLimits) Overrides() []*Override {
	out := make([]*Override, 0, len(k.overrides))
	for _, o := range k.overrides {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b *Override) int { return cmp.Compare(event.FormatKey(a.Key), event.FormatKey(b.Key)) })
	return out
}

// asks reports whether events are asked for the key's limit.
func (k *KeyLimits) asks() bool { return len(k.Tiers) > 0 || k.Told != nil }

// tierID names a Hit's tier in states.
func (k *KeyLimits) tierID(number int) uint64 {
	switch {
	case number >= 1 && number <= len(k.Tiers):
		return k.Tiers[number-1].id
	case number == len(k.Tiers)+1 && k.Told != nil:
		return k.Told.id
	}
	return 0
}

// tierNumber returns the tier of an id, from 1; 0 for none.
func (k *KeyLimits) tierNumber(id uint64) int {
	for i := range k.Tiers {
		if id != 0 && k.Tiers[i].id == id {
			return i + 1
		}
	}
	return 0
}

// source says in words where the limit of a key that has a tier at a time is from; "" is the rule.
func (k *KeyLimits) source(x *keystate.Extras, tier uint64, key []byte, at event.Micros) string {
	if _, has := k.overrides.of(key, at); has {
		return "overrides"
	}
	if k.Told != nil && k.Told.id == tier {
		return "attrs." + k.Told.Attr
	}
	return ""
}

// largest is the greatest number there is.
func (k *KeyLimits) largest() (most event.Decimal) {
	for i := range k.Tiers {
		most = max(most, k.Tiers[i].Limit)
	}
	if k.Told != nil {
		most = max(most, k.Told.Most)
	}
	for _, o := range k.overrides {
		most = max(most, o.Limit)
	}
	return most
}

// toldLimit is the limit that a key was told last: its own, that of its tier, or the one that its latest event told;
// it may be Unlimited. It is not known when the rule has no such tier any more.
func (l *Limit) toldLimit(x *keystate.Extras, allow allowances, key []byte, at event.Micros) (limit event.Decimal, known bool) {
	return l.limitBy(x, allow, x.Tier, key, at)
}

// limitBy is the limit of a key that has a tier at a time: the one that a command gave it, else that of the rule file
// or the one it was told; and what is granted on top.
func (l *Limit) limitBy(x *keystate.Extras, allow allowances, tier uint64, key []byte, at event.Micros) (limit event.Decimal, known bool) {
	if own := allow.own(l, at); own != nil {
		if limit, known = own.Amount, true; limit == 0 { // as states have it
			limit = Unlimited
		}
	} else {
		limit, known = writtenLimit(l, x, tier, key, at)
	}
	if len(allow) > 0 && limit != Unlimited {
		limit = limit.Plus(allow.granted(l, at))
	}
	return limit, known
}

// writtenLimit is limitBy without commands.
func writtenLimit(l *Limit, x *keystate.Extras, tier uint64, key []byte, at event.Micros) (limit event.Decimal, known bool) {
	if limit, has := l.overrides.of(key, at); has {
		return limit, true
	}
	if tier == 0 {
		return l.threshold(), true
	}
	if i := l.tierNumber(tier); i > 0 {
		return l.Tiers[i-1].Limit, true
	}
	if l.Told != nil && l.Told.id == tier {
		return min(x.Told, l.Told.Most), true
	}
	return l.threshold(), false
}

// tellsLimits reports whether an event tells all limits of the rule that are told by events.
func (r *Rule) tellsLimits(e *event.Event) bool {
	for _, l := range r.Limits {
		if l.Told == nil {
			continue
		}
		if told, _ := l.Told.tell(r, e); told == Unlimited {
			return false
		}
	}
	return true
}
