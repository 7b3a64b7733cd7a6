package instance

import (
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
)

// Permit holds a request's places under limits on actions under way. A nil Permit holds nothing.
type Permit struct {
	done  atomic.Bool
	first hold
	more  []hold
}

// hold is a share of one limit.
type hold struct {
	table  *table
	part   *part
	e      *entry
	amount event.Decimal
}

// with adds a share to the permit. The part is locked.
func (p *Permit) with(t *table, in *part, e *entry, amount event.Decimal) *Permit {
	amount = min(amount, event.MaxDecimal-e.held) // of a key without a limit there may be any number
	in.hold(e, amount)
	h := hold{t, in, e, amount}
	if p == nil {
		return &Permit{first: h}
	}
	p.more = append(p.more, h)
	return p
}

// Done gives back what the request holds. Only the first call does anything. Call it also where the action
// failed, or panicked, by defer.
func (p *Permit) Done() {
	if p == nil || p.done.Swap(true) {
		return
	}
	p.first.release()
	for i := range p.more {
		p.more[i].release()
	}
}

func (h *hold) release() {
	h.part.mu.Lock()
	h.part.hold(h.e, -h.amount)
	h.part.mu.Unlock()
	if h.table.isFull() { // by the keys that could not leave meanwhile
		h.table.shrink()
	}
}
