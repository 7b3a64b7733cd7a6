package admit

import (
	"strings"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/instance"
	"github.com/tallygate/tallygate/rules"
)

// Permit is the answer to a request. End one that is Admitted with Done or Cancel: the first call counts, others do
// nothing. Its fields are to be read only.
type Permit struct {
	done     atomic.Bool // here it takes no room
	Admitted bool
	// InDoubt says that nobody knows whether a limit is reached: Config.OnDoubt decided. In HTTP a
	// denial is 503.
	InDoubt bool
	// Reason says in words why it was denied, or in doubt; "" where there is nothing to say.
	Reason string

	// ID names the permit, and Event is what the action's event is to carry. Both are empty where no
	// strict rule counts the request.
	ID    string
	Event event.Permit

	// By is the limit that decided, or has the least room; nil: none.
	By *rules.Limit
	// Key is the text of its key.
	Key     string
	Numbers Numbers

	a     *Admitter
	first hold
	rest  *rest // nil for most
}

// rest holds the fields that few permits need. It is apart since all else is made for every request.
type rest struct {
	instance *instance.Permit
	local    []share
	more     []hold
	event    *event.Event // for Config.Events: without the outcome and the permit
	kept     string       // its place among what Admitter.kept has; "": none
}

// noRest is that of permits without any. It never changes.
var noRest rest

// others returns the permit's rest; read-only.
func (p *Permit) others() *rest {
	if p.rest == nil {
		return &noRest
	}
	return p.rest
}

// change returns the permit's rest, to write.
func (p *Permit) change() *rest {
	if p.rest == nil {
		p.rest = new(rest)
	}
	return p.rest
}

// hold is a permit for one key.
type hold struct {
	partition int32
	inFlight  bool
	key, id   string
}

// Done says that the action has ended, and how. It gives back what was under way. What else was
// permitted is settled by the action's event, which has to carry Event: with Config.Events Done emits it.
func (p *Permit) Done(outcome string) { p.End(outcome) }

// End is Done. It reports whether the action's event is on its way.
func (p *Permit) End(outcome string) (emitted bool) {
	if p.a == nil || p.done.Swap(true) {
		return false
	}
	p.release(false)
	return p.emits() && p.a.cfg.Events.Emit(p.eventOf(outcome))
}

// RequestID is the Request.ID with which the request gets the same permit again, within its hold: so one
// that is in flight is held for longer. It is "" where Redis holds nothing.
func (p *Permit) RequestID() string {
	if p.Event.ID != "" {
		return p.ID
	}
	return strings.TrimSuffix(p.ID, inFlightID)
}

// inFlightID is appended to the id of what is given back at the end, and not by the event.
const inFlightID = "~f"

// Cancel gives the whole permit back: the action did not happen, and there will be no event.
func (p *Permit) Cancel() {
	if p.a == nil || p.done.Swap(true) {
		return
	}
	p.release(true)
}

// Leave is for an action that another process carries out and ends by its event. It gives back what is
// under way by this process' own count, as nobody tells when it ends. What is under way in Redis is
// given back after its hold.
func (p *Permit) Leave() {
	if p.a == nil || p.done.Swap(true) {
		return
	}
	p.releaseHere()
}

func (p *Permit) release(all bool) {
	p.releaseHere()
	p.giveBack(&p.first, all)
	more := p.others().more
	for i := range more {
		p.giveBack(&more[i], all)
	}
}

// releaseHere gives back what only this process holds.
func (p *Permit) releaseHere() {
	if p.rest == nil {
		return
	}
	p.a.kept.drop(p.rest.kept)
	p.rest.instance.Done()
	for i := range p.rest.local {
		p.rest.local[i].release()
	}
}

func (p *Permit) giveBack(h *hold, all bool) {
	if h.id != "" && (all || h.inFlight) {
		p.a.cancels.add(h.partition, h.key, h.id)
	}
}

func (p *Permit) add(h hold) {
	if p.first.id == "" {
		p.first = h
		return
	}
	x := p.change()
	x.more = append(x.more, h)
}

// granted notes a permit for a key that the event settles.
func (p *Permit) granted(key string, at event.Micros, first bool) {
	if first {
		p.Event = event.Permit{ID: p.ID, At: at}
		return
	}
	if len(p.Event.Keys) == 0 { // of one key the event names it
		p.Event.Keys = append(p.Event.Keys, event.PermitKey{Key: p.settles(), At: p.Event.At})
	}
	p.Event.Keys = append(p.Event.Keys, event.PermitKey{Key: key, At: at})
}

// settles is the first key that the event settles.
func (p *Permit) settles() string {
	if p.first.inFlight {
		for _, h := range p.others().more {
			if !h.inFlight {
				return h.key
			}
		}
	}
	return p.first.key
}

func (p *Permit) emits() bool { return p.others().event != nil && p.Admitted && p.a.cfg.Events != nil }

// eventOf is the action's event. Its id is the same however often it is made: one that was sent twice
// counts once.
func (p *Permit) eventOf(outcome string) event.Event {
	e := *p.others().event
	e.Outcome, e.Permit = outcome, p.Event
	return e
}

func (p *Permit) count(c *counts) {
	switch {
	case p.InDoubt:
		c.inDoubt.Add(1)
	case !p.Admitted:
		c.denied.Add(1)
	case p.ID != "":
		c.admitted.Add(1)
	}
}
