// Package windows counts amounts per window of time, one key and one limit at a time.
//
// It is pure: no I/O, no clock, no goroutine. Time is an argument, and a counter's state is
// a short run of bytes that the caller keeps: what is in memory is what goes on the wire.
//
// The methods of Spec are what callers see. Each does what all kinds have in common, and leaves the
// rest to the Spec's kind: see kind.go.
package windows

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/event"
)

// Validate returns all that is wrong, joined, and sets what was left to its default:
// Resolution and Zone. Fields that the Kind does not use are not looked at.
func (s *Spec) Validate() error {
	if s.Kind.unknown() {
		return fmt.Errorf("windows: unknown kind %d", s.Kind)
	}
	var err error
	switch {
	case s.Distinct && !s.Kind.CountsValues():
		err = fmt.Errorf("windows: a %v does not count distinct values", s.Kind)
	case s.Estimate && !s.Estimates():
		err = errors.New("windows: only distinct values are estimated, and not in sliding or hopping windows")
	case s.Refunds && !s.Refundable():
		err = fmt.Errorf("windows: nothing is taken back from a %v, nor from distinct values", s.Kind)
	}
	return errors.Join(err, s.kind().validate(s))
}

// Refundable tells whether Take takes amounts back from windows like this one.
func (s *Spec) Refundable() bool { return s.kind().refundable() }

// Estimates tells whether it counts distinct values, and may do so by Estimate.
func (s *Spec) Estimates() bool { return s.kind().estimates() }

// MaxBytes bounds the states that Add makes, with room for what it does on the way.
func (s *Spec) MaxBytes() int { return s.kind().maxBytes(s) }

// Check tells whether state, empty or from anywhere, is a state of this Spec: one that the
// other methods can work on. States that Add made always are. Edges of a Calendar window that
// other zone data gave are let pass: they hold until their window has ended.
func (s *Spec) Check(state []byte) error {
	if len(state) == 0 {
		return nil
	}
	k := s.kind()
	oldest, newest := k.formats()
	if state[0]&kindBits == oldest&kindBits && state[0] > newest {
		return fmt.Errorf("%w: format %#02x, this one reads %#02x", ErrNewer, state[0], newest)
	}
	if state[0] != oldest && state[0] != newest {
		return fmt.Errorf("windows: state has format %#02x, not %#02x", state[0], oldest)
	}
	if err := k.check(s, state); err != nil {
		return fmt.Errorf("windows: check state: %w", err)
	}
	return nil
}

// AddSpent is Add, and says too what Spent says of the state then.
func (s *Spec) AddSpent(state []byte, at event.Micros, n event.Decimal) (_ []byte, added Added, spent event.Micros) {
	k := s.kind()
	if n > 0 && len(state) > 0 {
		var ok bool
		if state, added, spent, ok = k.addSpent(s, state, clamp(at), n); ok {
			return state, added, spent
		}
	}
	state, added = k.add(s, state, clamp(at), max(n, 0))
	return state, added, s.Spent(state)
}

// Add counts n at the time at. A state of length 0 is an empty counter. The state may be
// changed in place and grown with append: the caller goes on with the one returned, and one
// whose capacity is MaxBytes never makes Add allocate. n is not negative; 0 counts nothing
// but moves the latest time. An exact sliding window cuts n to a whole number.
//
// A late event counts in the window it belongs to while that is held, judged at the latest
// time: Tumbling and Calendar hold the current window, and the one directly before it until
// min(its length, Lateness) past its end, Session the current one and the one before until
// min(Gap, Lateness) past its end, and a late event may join the two; Sliding holds
// (latest-Per, latest]. An event older than that changes nothing. No event is late for a Bucket.
//
// Hopping holds each window until min(Per, Lateness) past its end. A late event counts in all of them
// that hold it. Added has the greatest of their counts; Ended tells that it is one of an ended window,
// and that the windows which hold the latest time have less. They have the event, too, if its time is
// not before their Bounds. Distinct values are held of windows that hold the latest time only.
//
// Of a Distinct Spec, Add only moves the latest time, and tells whether the moment is late.
func (s *Spec) Add(state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	return s.kind().add(s, state, clamp(at), max(n, 0))
}

// AddValue counts a value of a Distinct Spec, of which hash stands for it, as Add counts an
// amount. Added.Known tells that the value had been counted in the window it went into.
func (s *Spec) AddValue(state []byte, at event.Micros, hash uint64) ([]byte, Added) {
	return s.kind().addValue(s, state, clamp(at), hash)
}

// Count is the current window's count, judged at the latest time. A Bucket's is its level, rounded
// up to a millionth.
func (s *Spec) Count(state []byte) event.Decimal {
	if len(state) == 0 {
		return 0
	}
	k := s.kind()
	return k.countAt(s, state, k.latest(state))
}

// CountAt returns the count at now, which is not before the latest time, if nothing happened until then.
func (s *Spec) CountAt(state []byte, now event.Micros) event.Decimal {
	if len(state) == 0 {
		return 0
	}
	k := s.kind()
	return k.countAt(s, state, max(clamp(now), k.latest(state)))
}

// Since is the first moment of which an event counts in the current window: of FromFirst that may be before its
// start. The state is not empty.
func (s *Spec) Since(state []byte) event.Micros {
	k := s.kind()
	if early, ok := k.(interface {
		since(s *Spec, state []byte) event.Micros
	}); ok {
		return early.since(s, state)
	}
	from, _ := k.bounds(s, state, k.latest(state))
	return from
}

// Bounds is the window that CountAt speaks of: [from, to) of Tumbling, Calendar and Session, (from, to]
// of Sliding; of a Bucket, from now to when it is empty. Of the Hopping windows that hold now it is the
// first: none of the others has counted more.
func (s *Spec) Bounds(state []byte, now event.Micros) (from, to event.Micros) {
	return s.kind().bounds(s, state, max(clamp(now), s.Latest(state)))
}

// Overlap returns the time by which the last window that holds a moment ends later than that of Bounds: 0 of all but
// Hopping.
func (s *Spec) Overlap() event.Micros {
	if !kinds[s.Kind].hops {
		return 0
	}
	return s.Per - s.Every
}

// Full is the least count at which there is no room for one more under a limit: the limit itself. For a
// Bucket limit is the burst, at least 1, and there is room while there is one token: while the level is
// at most limit - 1.
func (s *Spec) Full(limit event.Decimal) event.Decimal { return s.kind().full(limit) }

// Below is the first moment, not before the latest time, from which the current window's
// count is less than Full if nothing more happens. The limit is positive, and at most ExactLimit
// for an exact sliding window. Of an empty state it is event.NoTime.
func (s *Spec) Below(state []byte, limit event.Decimal) event.Micros {
	if len(state) == 0 {
		return event.NoTime
	}
	return s.kind().below(s, state, limit)
}

// Spent is the moment from which the state cannot matter any more: when no event is older
// than that, an empty state gives the same counts from then on. It is not before the latest
// time, and event.NoTime of an empty state.
func (s *Spec) Spent(state []byte) event.Micros {
	if len(state) == 0 {
		return event.NoTime
	}
	return s.kind().spent(s, state)
}

// Latest is the greatest time that Add was given and counted, event.NoTime of an empty state.
func (s *Spec) Latest(state []byte) event.Micros {
	if len(state) == 0 {
		return event.NoTime
	}
	return s.kind().latest(state)
}

// Take takes n back from what an event at the time at counted, as far as that is held. It
// moves no time: Add with an amount of 0 does. Unlike Add it may allocate.
func (s *Spec) Take(state []byte, at event.Micros, n event.Decimal) []byte {
	if !s.Refunds || len(state) == 0 || n <= 0 {
		return state
	}
	return s.kind().take(s, state, clamp(at), n)
}

// Holds tells whether what an event at the time at counted is still in the window that it went
// into, and that is held.
func (s *Spec) Holds(state []byte, at event.Micros) bool {
	return len(state) > 0 && s.kind().holds(s, state, clamp(at))
}

// Empty takes back all that is in the current window, or in the one before it. Of Hopping windows that
// is all that is in those that hold the latest time, or all that only ended ones have.
func (s *Spec) Empty(state []byte, before bool) []byte {
	if len(state) == 0 {
		return state
	}
	return s.kind().empty(s, state, before)
}

// Carry makes of a state of another Spec one of this, so that what was counted goes on. The two are
// windows of one length and differ in Exact, Resolution and Refunds only, or not at all. The state is
// one that the other's Check lets pass. Unlike Add it may allocate.
//
// Exact times go into their panes. What was in a pane gets the pane's last moment as its time: it
// never counts too little, and at most one pane too long.
func (s *Spec) Carry(state []byte, from *Spec) []byte {
	if len(state) == 0 {
		return state
	}
	return s.kind().carry(s, state, from)
}
