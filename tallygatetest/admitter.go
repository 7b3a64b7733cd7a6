package tallygatetest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/instance"
	"github.com/tallygate/tallygate/pipeline/admit/limits"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/admit/standing"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// admitter grants permits as Redis does: by the protocol's memory, which hears of each event at once.
type admitter struct {
	h        *Harness
	idle     bool
	instance *instance.Limits
	limits   map[*rules.Limit]*limits.Limit

	// All below is under the Harness' lock.
	requests *rules.Requests
	memory   protocol.Memory
	heard    []protocol.Record // that the memory is to hear of
	next     int64             // place of the next record
	ids      int
}

// life is the name of the one memory that there is.
const life = "tallygatetest"

func (a *admitter) init(h *Harness) {
	strict := h.set.Strict()
	a.h, a.idle = h, len(strict) == 0 && len(h.set.Instance) == 0
	a.instance = instance.New(h.set, instance.Options{Now: h.now})
	a.requests, a.limits = rules.NewRequests(strict), map[*rules.Limit]*limits.Limit{}
	for _, r := range strict {
		for _, l := range r.Limits {
			a.limits[l] = limits.Of(l)
		}
	}
}

// Idle reports whether no rule asks for anything.
func (a *admitter) Idle() bool { return a.idle }

// ask is a question about one key. What is in flight is asked apart: it is given back at the end.
type ask struct {
	protocol.Ask
	by       []*rules.Limit // of Wants
	inFlight bool
}

// inFlightID is appended to the id of what is in flight.
const inFlightID = "~f"

// AdmitRequest decides on a request.
func (a *admitter) AdmitRequest(ctx context.Context, r enforce.Request) (enforce.Admission, error) {
	if err := ctx.Err(); err != nil {
		return enforce.Admission{}, err
	}
	if r.Cost < 0 {
		return enforce.Admission{}, fmt.Errorf("tallygatetest: the request's Cost is %v, want none negative", r.Cost)
	}
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	e := limits.Event(slices.Clone(r.Attrs), r.API, r.Dims, r.Cost)
	res, held := a.instance.Admit(&e)
	if !res.Allowed {
		held.Done()
		return a.refuse(res.Limit, res.Numbers), nil
	}
	least := room{by: res.Limit, n: res.Numbers}
	asks, known := a.asks(&e)
	if !known {
		held.Done()
		return enforce.Admission{Decision: enforce.Unknown()}, nil
	}
	permit := &permit{a: a, here: held}
	for i := range asks {
		one := &asks[i]
		answer := a.ask(one)
		n := limits.Numbers(one.Wants, &answer, answer.Status == protocol.Granted)
		var by *rules.Limit
		if answer.Decides >= 0 {
			by = one.by[answer.Decides]
		}
		switch answer.Status {
		case protocol.Granted:
			permit.granted = append(permit.granted, grant{one.Key, one.IDs[0], answer.At, one.inFlight})
			least.consider(by, n)
		case protocol.Denied, protocol.TooMany:
			permit.end(true)
			return a.refuse(by, n), nil
		default: // not reached: the memory has all that it asks for
			permit.end(true)
			return enforce.Admission{Decision: enforce.Unknown()}, nil
		}
	}
	return permit.admission(least), nil
}

// asks makes the questions for a request. It returns false when nobody knows what its event will add.
func (a *admitter) asks(e *event.Event) (asks []ask, known bool) {
	wants := a.requests.Wants(e, event.NoTime)
	for _, s := range a.requests.Skipped {
		switch s.Reason {
		case rules.SkipAbsent, rules.SkipNumber, rules.SkipNegative, rules.SkipFraction:
			a.h.log("a request of %s is denied in doubt: the rule %s cannot count it: %s", e.API, s.Rule.Name, s.Reason)
			return nil, false
		}
	}
	a.ids++
	for i := range wants {
		w := &wants[i]
		if w.Exempt {
			continue
		}
		at := slices.IndexFunc(asks, func(one ask) bool { return one.inFlight == w.Limit.InFlight && one.Key == string(w.Key) })
		if at < 0 {
			id := fmt.Sprint("permit-", a.ids)
			if w.Limit.InFlight {
				id += inFlightID
			}
			at = len(asks)
			asks = append(asks, ask{inFlight: w.Limit.InFlight, Ask: protocol.Ask{Key: string(w.Key), IDs: []string{id}}})
		}
		one := &asks[at]
		one.Wants, one.by = append(one.Wants, a.limits[w.Limit].Want(w, a.h.now())), append(one.by, w.Limit)
	}
	slices.SortFunc(asks, func(x, y ask) int {
		return cmp.Or(strings.Compare(x.Key, y.Key), cmp.Compare(len(x.IDs[0]), len(y.IDs[0])))
	})
	return asks, true
}

// ask asks the memory, when it has heard of all that is counted.
func (a *admitter) ask(one *ask) protocol.Answer {
	a.hear()
	one.Before = math.MaxInt64
	return a.memory.Admit(a.process(), &one.Ask)
}

func (a *admitter) process() protocol.Process {
	return protocol.Process{Run: life, Time: a.h.now(), New: life}
}

// hear has the memory hear of what is counted, and counts what is lost.
func (a *admitter) hear() {
	for first := true; first || len(a.heard) > 0; first = false {
		now := a.h.now()
		grants := protocol.Record{Grants: &protocol.Grants{Run: life, Life: life, Until: now + event.Hour}}
		b := protocol.Batch{
			Of: 1, Start: a.next, Next: a.next + 1, Beat: now, Records: append(a.heard, grants),
			Forwarded: protocol.Mark{Epoch: life, At: now}, Settled: protocol.Mark{Epoch: life, At: now},
		}
		a.next, a.heard = b.Next, nil
		applied := a.memory.Apply(a.process(), &b)
		for i := range applied.Lost {
			a.h.engine.Lose(&applied.Lost[i], now, &a.h.out)
			a.h.settle()
		}
	}
}

// sweep looks for what is lost by now.
func (a *admitter) sweep() {
	if !a.idle {
		a.hear()
	}
}

// refuse is the answer when a limit is reached.
func (a *admitter) refuse(by *rules.Limit, n standing.Numbers) enforce.Admission {
	const longest = 24 * time.Hour
	v := &verdict.Verdict{Rule: by.Name, Public: by.Rule.Public, Action: by.Rule.Action, Limit: n.Limit}
	return enforce.Admission{Decision: enforce.RefuseAt(a.h.now(), v, min(n.RetryAfter, longest))}
}

// room is the limit that has the least room left.
type room struct {
	by *rules.Limit
	n  standing.Numbers
}

func (r *room) consider(by *rules.Limit, n standing.Numbers) {
	if by != nil && (r.by == nil || n.Remaining < r.n.Remaining) {
		r.by, r.n = by, n
	}
}

// permit is a request's permit.
type permit struct {
	a       *admitter
	once    sync.Once
	here    *instance.Permit // under limits of the process
	granted []grant
}

// grant is a permit for one key.
type grant struct {
	key, id  string
	at       event.Micros
	inFlight bool
}

// admission lets the request in.
func (p *permit) admission(least room) enforce.Admission {
	out := enforce.Admission{Decision: enforce.Decision{Allowed: true}, Held: p}
	for _, g := range p.granted {
		if g.inFlight {
			continue
		}
		if out.Permit.ID == "" {
			out.Permit.ID, out.Permit.At = g.id, g.at
		}
		out.Permit.Keys = append(out.Permit.Keys, event.PermitKey{Key: g.key, At: g.at})
	}
	if len(out.Permit.Keys) == 1 { // the event names it
		out.Permit.Keys = nil
	}
	if by := least.by; by != nil {
		out.Standing = enforce.Standing{Rule: by.Name, Public: by.Rule.Public, Limit: least.n.Limit, Remaining: least.n.Remaining, Reset: least.n.ResetAfter}
	}
	return out
}

// Done gives back what was in flight. The event settles the rest.
func (p *permit) Done(string) { p.first(func() { p.end(false) }) }

// Cancel gives everything back.
func (p *permit) Cancel() { p.first(func() { p.end(true) }) }

// Leave gives back what only the process counts.
func (p *permit) Leave() { p.first(p.here.Done) }

func (p *permit) first(do func()) {
	p.once.Do(func() {
		p.a.h.mu.Lock()
		defer p.a.h.mu.Unlock()
		do()
	})
}

func (p *permit) end(all bool) {
	p.here.Done()
	for _, g := range p.granted {
		if all || g.inFlight {
			p.a.memory.Cancel(p.a.process(), 0, g.key, []string{g.id})
		}
	}
}
