package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// Above says that an event counted above a limit: it would have been kept out, had the limit been
// enforced before the event.
type Above struct {
	Limit  *Limit
	Shadow bool // nothing was to keep it out: the limit's verdicts are in shadow mode

	// Since is the time from the beginning of the verdict in force to the event, by the event's own time; 0 for the
	// event that triggered it. NoTime when none is in force, or the event is of ended windows only.
	Since event.Micros
}

// Above returns the limits that the event of the last Step counted above. It is valid until the
// next Step. It is not in Result, since each event would pay for a larger one.
func (p *Stepper) Above() []Above { return p.above }

// above reports whether an event counted above a limit that keeps events out, by verdicts or by
// permits. What adds nothing does not, whatever the count is. A rule that only warns keeps nothing
// out, nor does a candidate, which is tried beside the limit that does.
func (f *facts) above(l *Limit) bool {
	return f.mayBeKeptOut(l) && max(f.added.Count, f.whole) > f.limit
}

func (f *facts) mayBeKeptOut(l *Limit) bool {
	return f.adds && !f.exempt && f.limit != Unlimited && keepsOut(l)
}

// keepsOut reports whether the limit keeps events out, by verdicts or by permits.
func keepsOut(l *Limit) bool {
	onlyWarns := l.Rule.Then.None && l.Rule.Strict == nil
	return !onlyWarns && !l.Shadow
}

// Near returns the limits of which the event of the last Step left its key with nearShare or more, and not above
// them. It is valid until the next Step.
func (p *report) Near() []*Limit { return p.near }

// nearShare is the share of a limit, in percent, from which on a key is near it.
const nearShare = 80

// nearTo is the smallest count that is near a limit.
func nearTo(limit event.Decimal) event.Decimal {
	return limit/100*nearShare + limit%100*nearShare/100
}

// nearest is nearTo of the limit that keys have for whom nothing tells another one; beyond all counts if none is to
// be near it.
func nearest(l *Limit) event.Decimal {
	if !keepsOut(l) || l.threshold() == 0 {
		return event.MaxDecimal
	}
	return nearTo(l.threshold())
}

// near reports whether an event left its key near a limit, if it is not above it.
func (f *facts) near(l *Limit) bool {
	return f.mayBeKeptOut(l) && max(f.added.Count, f.whole) >= nearTo(f.limit)
}

// noteNear notes that a hit that there is nothing to judge about has left its key near a limit.
func noteNear(p *Stepper, l *Limit, hit *Hit, key, window []byte, count event.Decimal) {
	if hit.Amount > 0 && count <= l.threshold() && !p.isExempt(l, key, l.Window.Latest(window)) {
		p.near = append(p.near, l)
	}
}

func (p *Stepper) noteAbove(l *Limit, s *keystate.Slot, f *facts) {
	a := Above{Limit: l, Shadow: p.Fuses.shadow(l), Since: event.NoTime}
	if _, current := f.current(l); s.Had && current {
		a.Since = max(f.at-s.Block.Since, 0)
	}
	p.above = append(p.above, a)
}

// Counted is the count under a sought limit after an event.
type Counted struct {
	Limit  *Limit
	Amount event.Decimal // that the event added; of distinct values 1 for a new one
	Count  event.Decimal // of the window that the event went into
}

// noteCounted notes what a sought limit counted for a key to which it applies, and not another one by tiers,
// overrides or exemptions.
func noteCounted(p *Stepper, l *Limit, f *facts, amount event.Decimal) {
	if !f.adds || f.exempt || f.limit != l.threshold() {
		return
	}
	if l.Rule.Count == CountDistinct {
		amount = event.One
	}
	p.Counted = append(p.Counted, Counted{Limit: l, Amount: amount, Count: max(f.added.Count, f.whole)})
}
