package rules

import (
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// Above says that an event counted above a limit: it would have been kept out, had the limit been
// enforced before the event.
type Above struct {
	Limit  *Limit
	Shadow bool // nothing was to keep it out: the limit's verdicts are in shadow mode

	// Since is how long before the event, by the event's own time, the verdict in force began; 0 for
	// the event that triggered it. NoTime when none is in force, or the event is of ended windows only.
	Since event.Micros
}

// Above returns the limits that the event of the last Step counted above. It is valid until the
// next Step. It is not in Result, since each event would pay for a larger one.
func (p *Stepper) Above() []Above { return p.above }

// above reports whether an event counted above a limit that keeps events out, by verdicts or by
// permits. What adds nothing does not, whatever the count is. A rule that only warns keeps nothing
// out, nor does a candidate, which is tried beside the limit that does.
func (f *facts) above(l *Limit) bool {
	onlyWarns := l.Rule.Then.None && l.Rule.Strict == nil
	if !f.adds || f.exempt || f.limit == 0 || onlyWarns || l.Shadow {
		return false
	}
	return max(f.added.Count, f.whole) > f.limit
}

func (p *Stepper) noteAbove(l *Limit, s *keystate.Slot, f *facts) {
	a := Above{Limit: l, Shadow: p.shadow(l), Since: event.NoTime}
	if _, current := f.current(l); s.Had && current {
		a.Since = max(f.at-s.Block.Since, 0)
	}
	p.above = append(p.above, a)
}
