package rules

import (
	"cmp"
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// Told is a limit that an attribute of the key's latest event tells.
type Told struct {
	Attr string        // the attribute
	Most event.Decimal // what it tells at most

	id uint64 // what states call it: as a Tier's
}

// tell is the limit that an event tells; 0 for none. bad says that the attribute is there, and none.
func (t *Told) tell(r *Rule, e *event.Event) (limit event.Decimal, bad bool) {
	v, ok := e.Attr(t.Attr)
	if !ok {
		return 0, false
	}
	if v.Kind == event.Number {
		var reason string
		if limit, reason = sumAmount(v.Text, 1, event.One); reason != "" {
			limit = 0
		}
	}
	if limit = min(limit, t.Most); r.Count != CountSum && !limit.Whole() {
		limit = 0
	}
	return limit, limit == 0
}

// Override is a limit of one key.
type Override struct {
	Key    []event.Dim   // sorted
	Limit  event.Decimal // 0: unlimited
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

// Override returns the limit of its own that a key has at a time, whose text is given; 0 is unlimited.
func (l *Limit) Override(key []byte, at event.Micros) (limit event.Decimal, has bool) {
	return l.overrides.of(key, at)
}

// Overrides are the keys with limits of their own, in the order of their texts.
func (l *Limit) Overrides() []*Override {
	out := make([]*Override, 0, len(l.overrides))
	for _, o := range l.overrides {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b *Override) int { return cmp.Compare(event.FormatKey(a.Key), event.FormatKey(b.Key)) })
	return out
}

// limitOf is the limit of a key: its own, that of its tier, or the one that its latest event told; 0 is
// unlimited. It is not known when the rule has no such tier any more.
func (l *Limit) limitOf(x *keystate.Extras, key []byte, at event.Micros) (limit event.Decimal, known bool) {
	if limit, has := l.overrides.of(key, at); has {
		return limit, true
	}
	if x.Tier == 0 {
		return l.threshold(), true
	}
	for i := range l.Tiers {
		if l.Tiers[i].id == x.Tier {
			return l.Tiers[i].Limit, true
		}
	}
	if l.Told != nil && l.Told.id == x.Tier && x.Told > 0 {
		return min(x.Told, l.Told.Most), true
	}
	return l.threshold(), false
}

// limitSource says in words where a key's limit is from; "" is the rule.
func (l *Limit) limitSource(x *keystate.Extras, key []byte, at event.Micros) string {
	if _, has := l.overrides.of(key, at); has {
		return "overrides"
	}
	if l.Told != nil && l.Told.id == x.Tier && x.Told > 0 {
		return "attrs." + l.Told.Attr
	}
	return ""
}

// tellsLimits reports whether an event tells all limits of the rule that are told by events.
func (r *Rule) tellsLimits(e *event.Event) bool {
	for _, l := range r.Limits {
		if l.Told == nil {
			continue
		}
		if told, _ := l.Told.tell(r, e); told == 0 {
			return false
		}
	}
	return true
}

// asks reports whether events are asked for the key's limit.
func (l *Limit) asks() bool { return len(l.Tiers) > 0 || l.Told != nil }
