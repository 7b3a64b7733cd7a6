package tallygatetest

import (
	"fmt"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// emitter is a Harness for those who emit.
type emitter struct{ h *Harness }

// Emit counts an event. A middleware takes an event's time from the system's clock: a time since the
// Harness was made is now.
func (m emitter) Emit(e event.Event) bool {
	if e.Time >= event.FromTime(m.h.began) && e.Time <= event.FromTime(time.Now()) {
		e.Time = event.NoTime
	}
	return m.h.emit(e)
}

// emit counts an event as it would come out of Kafka.
func (h *Harness) emit(e event.Event) bool {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if e.Cost == 0 { // as an emit.Emitter does
		e.Cost = event.One
	}
	if e.Time == 0 || e.Time == event.NoTime {
		e.Time = now
	}
	h.ids++
	if e.ID == "" {
		e.ID = fmt.Sprint("tallygatetest-", h.ids)
	}
	e.BrokerTime = event.NoTime
	e.Canonicalize()
	if err := e.Validate(); err != nil {
		if !h.over {
			h.t.Errorf("tallygatetest: no service could emit this event: %v", err)
		}
		return false
	}
	e = e.Clone()
	h.engine.Apply(&e, now, verdict.Cause{Offset: int64(h.ids)}, &h.out)
	h.tell(&e)
	h.settle()
	return true
}

// tell notes in the test's log why an event counts nowhere, once of each kind.
func (h *Harness) tell(e *event.Event) {
	out := &h.out
	switch {
	case out.TooOld:
		h.log("an event of %s at %v is older than the rules' max_lateness, and counts nowhere", e.API, e.Time)
	case len(out.Hits)+len(out.Told) == 0 && len(out.Skipped) == 0:
		h.log("no rule counts an event of %s with the outcome %q", e.API, e.Outcome)
	}
	for _, s := range out.Skipped {
		h.log("the rule %s cannot count an event of %s: %s", s.Rule.Name, e.API, s.Reason)
	}
}

func (h *Harness) log(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !h.told[text] && !h.over {
		h.told[text] = true
		h.t.Log("tallygatetest: " + text)
	}
}

// settle has the blocklist and the permits follow what was counted.
func (h *Harness) settle() {
	if len(h.out.Changes) > 0 {
		h.table.Apply(0, h.out.Changes)
	}
	if len(h.out.Left) > 0 {
		h.table.Apply(0, h.out.Left)
	}
	h.admitter.heard = append(h.admitter.heard, h.out.Strict...)
}
