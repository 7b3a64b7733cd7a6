package enforcer

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/tracing"
	"github.com/tallygate/tallygate/verdict"
)

// traced makes the span of a block that came into force here; nil if spans go nowhere. It begins with the
// block's Since, which is the time of the event, and names the rule, and no key.
func (e *Program) traced() func(*verdict.Verdict, event.Micros) {
	if e.Spans == nil {
		return nil
	}
	return func(v *verdict.Verdict, at event.Micros) {
		e.Spans.Send(tracing.EnforcedSpan(v, at))
	}
}
