package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Scope selects who counts by a rule.
type Scope uint8

// Who counts by a rule.
const (
	ScopeAll      Scope = iota // the aggregator, events of all processes together
	ScopeInstance              // each process for itself, the requests that it lets in
)

// Lost selects the fate of a permit whose action never reported its outcome.
type Lost uint8

// What becomes of it.
const (
	LostCount  Lost = iota // it counts as an event would
	LostReturn             // it is given back: for actions that surely end within Strict.Hold
)

// Strict sets how permits are held, of a rule that lets nothing through without one.
type Strict struct {
	Hold  event.Micros // how long an action may take, until its event is in Kafka
	Lost  Lost
	Ahead event.Micros // within that time permits may be asked for beforehand; 0: none are
}

// WarmUp sets how a bucket of ScopeInstance gets to its rate after it was idle. The zero value is the whole rate at
// once.
type WarmUp struct {
	Time event.Micros  // so long it takes
	From event.Decimal // the share of rate and burst that it begins with, more than 0 and less than 1
}

const (
	// MaxStrict is the greatest amount that a strict limit may have: in millionths it is a whole
	// number that a float64 holds, and Redis' scripts count with these.
	MaxStrict event.Decimal = 1 << 53

	defaultHold = 30 * event.Second
	minHold     = event.Second
	defaultKeys = 10_000
	maxKeys     = 1_000_000
)

// All are the rules of the file, in its order: Rules, InFlight and Instance.
func (s *Set) All() []*Rule { return s.all }

// Strict are the rules that a request needs a permit for, in the order of the file: of Rules those
// that are strict, and InFlight; none that is in shadow mode.
func (s *Set) Strict() (out []*Rule) {
	for _, r := range s.all {
		if r.Strict != nil && r.Mode != verdict.Shadow {
			out = append(out, r)
		}
	}
	return out
}

// StrictLimits are the limits that requests with a key of these dimensions need a permit under, in the order
// of the file. A non-empty api leaves only rules that match or cover it.
func (s *Set) StrictLimits(dims []event.Dim, api string) (out []*Limit) {
	for _, r := range s.Strict() {
		if !r.Shape.fits(dims) || api != "" && !r.concerns(api) {
			continue
		}
		for _, l := range r.Limits {
			if !l.Shadow {
				out = append(out, l)
			}
		}
	}
	return out
}

// CountsLimited reports whether the rule counts what a limit denied: its match names that outcome, or
// every one.
func (r *Rule) CountsLimited() bool {
	return r.match.takes(event.OutcomeLimited) && (r.match.when == nil || !r.match.when.Uses("outcome"))
}

// counted reports whether the aggregator counts events by the rule.
func (r *Rule) counted() bool { return r.Scope == ScopeAll && !r.underWay }

// beforehand reports whether a rule only ever sees requests, before their actions.
func (r *Rule) beforehand() bool { return !r.counted() }

// Silent reports whether the rule never issues a verdict: it decides before the action, and has neither
// `then` nor `warn`.
func (r *Rule) Silent() bool { return r.Then.None && len(r.warn) == 0 }

// ID names the tier in levels; 0 is that of no tier.
func (t *Tier) ID() uint64 { return t.id }
