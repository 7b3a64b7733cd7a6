package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/rules/when"
	"github.com/tallygate/tallygate/verdict"
)

// covers reports whether the rule counts events of an API, by its patterns.
func (r *Rule) covers(api string) bool { return r.match.hasAPI(api) }

func (rm *ruleMatch) hasAPI(api string) bool {
	return slices.ContainsFunc(rm.apis, func(a apiWeight) bool { return verdict.MatchAPI(a.pattern, api) })
}

// wants reports whether it is for an event, but for `when`.
func (rm *ruleMatch) wants(e *event.Event) bool { return rm.hasAPI(e.API) && rm.fits(e) }

func (r *Rule) otherAPI(api string) (why Reason, alike bool) {
	var patterns []string
	for _, a := range r.match.apis {
		patterns = append(patterns, a.pattern)
	}
	return Reason{PassAPI, "api is " + api + ", not " + oneOf(patterns)}, scalar.Closest(api, patterns) != ""
}

func (r *Rule) otherOutcome(outcome string) Reason {
	if len(r.match.outcomes) == 0 {
		return Reason{PassOutcome, "outcome is " + outcome + ", which match does not name: a limit denied it"}
	}
	return Reason{PassOutcome, "outcome is " + orAbsent(outcome) + ", not " + oneOf(r.match.outcomes)}
}

func (a *attrMatch) other(v event.Value, there bool) Reason {
	text := ""
	if there {
		text = v.Text
	}
	return Reason{PassAttr, "attrs." + a.name + " is " + orAbsent(text) + ", not " + oneOf(a.values)}
}

func orAbsent(text string) string {
	if text == "" {
		return "absent"
	}
	return scalar.Shortened(text)
}

// oneOf lists what was wanted: a, b or c.
func oneOf(list []string) string {
	const most = 6
	short := make([]string, 0, most)
	for _, text := range list[:min(len(list), most)] {
		if text == "" {
			text = "an absent one"
		}
		short = append(short, scalar.Shortened(text))
	}
	if more := len(list) - most; more > 0 {
		return fmt.Sprintf("%s or %d others", strings.Join(short, ", "), more)
	}
	if n := len(short); n > 1 {
		return strings.Join(short[:n-1], ", ") + " or " + short[n-1]
	}
	return strings.Join(short, "")
}

func (r *Rule) noRefund(e *event.Event) Reason {
	if e.Refunds == "" {
		return Reason{PassRefund, "cost is negative, and refunds names no event"}
	}
	return Reason{PassRefund, "cost is negative, and the rule has no refunds: true"}
}

func (r *Rule) countsBefore() Reason {
	what := "window: in-flight"
	if r.Scope == ScopeInstance {
		what = "scope: instance"
	}
	return Reason{PassBefore, "it counts requests before their actions, and no events (" + what + ")"}
}

func keyTooLong(n int) Reason {
	return Reason{SkipKey, fmt.Sprintf("the key has %d bytes, at most %d are counted", n, event.MaxKey)}
}

// notInTime is why an event counts under no rule whose time is none.
func (s *Set) notInTime(at, broker event.Micros) Reason {
	if at == event.NoTime {
		return Reason{PassNoTime, "neither the event nor its record has a time"}
	}
	return Reason{PassTooOld, fmt.Sprintf("too old: it happened %s before its broker time %s, max_lateness is %s",
		scalar.FormatDuration(broker-at-(broker-at)%event.Second), broker, scalar.FormatDuration(s.MaxLateness))}
}

// fails says why the rule's predicate does not hold.
func (t *Tracer) fails(r *Rule, e *event.Event, at event.Micros) Reason {
	parts := t.parts[r]
	if parts == nil {
		parts = when.Split(r.match.when.Source(), t.names)
		t.parts[r] = parts
		t.predicates.KnowParts(parts)
	}
	t.predicates.Next() // other variables may be used from now on
	why := t.predicates.Why(parts, e, at)
	code := PassWhen
	if why.Fails {
		code = SkipWhen
	}
	return Reason{code, "when: " + why.String()}
}

// noAmount says why the rule cannot count an event that is for it.
func (r *Rule) noAmount(code string, e *event.Event) Reason {
	what := r.Field
	if r.Attr != "" {
		what = "attrs." + r.Attr
	}
	v, _ := e.Attr(r.Attr)
	text := ""
	switch code {
	case SkipAbsent:
		text = "no " + what + ", which it counts"
	case SkipNumber:
		text = what + " is " + scalar.Shortened(v.Text) + ", and no number"
	case SkipNegative:
		text = what + " is " + scalar.Shortened(v.Text) + ", which is negative"
	case SkipFraction:
		text = "cost " + e.Cost.String() + " is no whole number of events; count: {sum: cost} adds fractions"
	}
	return Reason{code, text}
}

// noteOf names the trouble of a rule that counts an event all the same.
func noteOf(skip Skip) Reason {
	switch skip.Reason {
	case SkipLimit:
		return Reason{skip.Reason, "the attribute that tells the limit is none: the rule's own limit holds"}
	case SkipWhen:
		return Reason{skip.Reason, "the `when` of a tier cannot be evaluated: the tier does not hold"}
	}
	return Reason{skip.Reason, skip.Reason}
}

// ExemptBy returns the exemption of the rule file because of which a key, its dimensions sorted, is not
// judged at a time; nil when there is none. Of several it is the one that ends last.
func (r *Rule) ExemptBy(key []event.Dim, at event.Micros) (by *Exemption) {
	for i := range r.exempt {
		x := &r.exempt[i]
		if spares(x.Expires, at) && x.covers(key) && (by == nil || longer(by.Expires, x.Expires, true) != by.Expires) {
			by = x
		}
	}
	return by
}

// Passes reports whether a count triggers the limit's verdict for keys with a limit, which may be Unlimited.
func (l *Limit) Passes(count, limit event.Decimal) bool {
	return limit != Unlimited && !l.Rule.Then.None && l.passes(count, limit)
}

// LimitOf is the limit that a hit gives its key, before overrides; it may be Unlimited.
func (h *Hit) LimitOf() event.Decimal {
	switch l := h.Limit; {
	case h.Tier >= 1 && h.Tier <= len(l.Tiers):
		return l.Tiers[h.Tier-1].Limit
	case l.Told != nil && h.Tier == len(l.Tiers)+1:
		return min(h.Told, l.Told.Most)
	default:
		return l.threshold()
	}
}
