package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/windows"
)

// outcome is the effect of one event on a limit's block.
type outcome uint8

const (
	none    outcome = iota // there is no block
	held                   // a block is in force, as it was
	moved                  // it is to be published again
	issued                 // a new one
	cleared                // it ended before its end
)

// facts are a judge's inputs.
type facts struct {
	window  []byte
	added   windows.Added
	whole   event.Decimal // a bucket's level with all of the event, also what was cut off
	latest  event.Micros  // when it judges: the limit's latest time
	at      event.Micros  // the event's own time
	limit   event.Decimal // may be Unlimited
	ahead   *forecast     // nil: no other limit comes into force by time alone
	adds    bool          // the event added something: a verdict may be issued
	counts  bool          // it was counted: a penalty may be extended
	took    bool          // it took something back
	reset   bool          // it emptied the window up to its time
	changed bool          // the limit judges otherwise than before, such as at a bucket's other rate
	exempt  bool          // the key is exempt
	pass    bool          // a pass over changed rules judges, and no event
}

// against returns the facts for the judge of another limit, which has no tiers.
func (f *facts) against(limit event.Decimal) facts {
	other := *f
	other.limit, other.ahead = limit, nil
	return other
}

// below is the first moment from which the current window's count is below the limit that is in force then, if nothing
// more happens. exact says that another limit comes into force at it.
func (f *facts) below(l *Limit) (until event.Micros, exact bool) {
	if f.ahead != nil {
		return f.ahead.below(l, f.window, f.latest)
	}
	return below(&l.Window, f.window, f.limit), false
}

// orIssued is the limit that a block shows: under an unlimited tier that by which it was issued stays.
func (f *facts) orIssued(b *keystate.Block) event.Decimal {
	if f.limit == Unlimited {
		return b.Limit
	}
	return f.limit
}

// tooHigh reports whether the level that an event with a permit finds may be too high: a bucket counts a
// late event in full, though some of it had drained when the next permit was granted. There was room for
// both, so it issues no verdict.
func (f *facts) tooHigh(l *Limit) bool {
	return l.Strict && l.Window.Kind.HasRate() && (f.at < f.latest || f.added.Count > f.limit)
}

// current is the current window's count, and whether the event went into it. One that went into an
// ended hopping window may also be in windows that hold the latest time.
func (f *facts) current(l *Limit) (count event.Decimal, ok bool) {
	if !f.added.Ended {
		return f.added.Count, true
	}
	from, _ := l.Window.Bounds(f.window, f.latest)
	return l.Window.Count(f.window), f.at >= from
}
