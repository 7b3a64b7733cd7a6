// Package windows counts amounts per window of time, one key and one limit at a time.
//
// It is pure: no I/O, no clock, no goroutine. Time is an argument, and a counter's state is
// a short run of bytes that the caller keeps: what is in memory is what goes on the wire.
package windows

import (
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

// Kind is a kind of window.
type Kind uint8

// The kinds of windows.
const (
	Tumbling Kind = iota + 1 // [k·Per, (k+1)·Per), aligned to the Unix epoch plus Offset
	Calendar                 // the civil Unit that holds the time, in Zone
	Sliding                  // (t-Per, t]
	Session                  // events less than Gap apart
	Bucket                   // the generic cell rate algorithm: Limit per Per
)

// Unit is a civil unit of time.
type Unit uint8

// The civil units.
const (
	Hour Unit = iota + 1
	Day
	Week
	Month
	Year
)

// ExactLimit is the greatest limit up to which a sliding window of whole numbers keeps the
// times themselves; above, and for sums, it keeps panes.
const ExactLimit = 64

// MaxPanes bounds Per/Resolution of a sliding window of panes.
const MaxPanes = 3600

// MaxTime bounds times and spans: what is later counts as MaxTime, what is earlier than
// -MaxTime as that. It lies beyond the year 11000, and leaves room for sums of spans.
const MaxTime event.Micros = 1 << 58

// Spec says which window a counter covers. Make it with its fields and call Validate once;
// it is immutable from then on and may be used by many goroutines.
type Spec struct {
	Kind       Kind
	Per        event.Micros   // the length; unused by Calendar
	Offset     event.Micros   // Tumbling: what the edges are shifted by
	Unit       Unit           // Calendar
	Zone       *time.Location // Calendar; nil is UTC
	WeekStarts time.Weekday   // Calendar weeks; the zero value is Sunday, rules default to Monday
	Exact      bool           // Sliding: keep the times; amounts are whole numbers, limits at most ExactLimit
	Resolution event.Micros   // Sliding panes: a pane's length; 0 is Per/60 cut to whole µs, at least 1
	Lateness   event.Micros   // how long at most the window before the current one is held
	Gap        event.Micros   // Session
	Limit      event.Decimal  // Bucket: so much drains in Per
	Most       event.Decimal  // Bucket: the level at most, what is added beyond it is cut off; 0: any level
	Distinct   bool           // count the values that AddValue is given, not amounts; not for Bucket
	Estimate   bool           // Distinct, not Sliding: more than ExactDistinct values are estimated
	Refunds    bool           // Take takes amounts back; an exact sliding window then keeps more times
}

// Added is what became of one amount.
type Added struct {
	Late  bool          // the event was older than what is held: it was counted nowhere
	Ended bool          // it went into an ended window that is still held, not into the current one
	Known bool          // of AddValue: the window it went into had the value
	Count event.Decimal // of the window it went into, with it; when Late, of the current window
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
// Of a Distinct Spec, Add only moves the latest time.
func (s *Spec) Add(state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	at, n = clamp(at), max(n, 0)
	switch {
	case s.Distinct:
		state = s.touchDistinct(state, at)
		return state, Added{Known: true, Count: s.Count(state)}
	case s.Kind == Session:
		return s.addSession(state, at, n)
	case s.Kind == Bucket:
		return s.addBucket(state, at, n)
	case s.Kind != Sliding:
		return s.addPair(state, at, n)
	case s.Exact:
		return s.addExact(state, at, n)
	default:
		return s.addPanes(state, at, n)
	}
}

// Latest is the greatest time that Add was given and counted, event.NoTime of an empty state.
func (s *Spec) Latest(state []byte) event.Micros {
	switch {
	case len(state) == 0:
		return event.NoTime
	case s.Kind == Calendar && !s.Distinct:
		return readCalendar(state).latest
	default:
		return getLatest(state)
	}
}

// Count is the current window's count, judged at the latest time. A Bucket's is its level, rounded
// up to a millionth.
func (s *Spec) Count(state []byte) event.Decimal {
	switch {
	case len(state) == 0:
		return 0
	case s.Distinct || s.Kind > Sliding:
		return s.CountAt(state, s.Latest(state))
	case s.Kind != Sliding:
		return s.readPair(state).cur
	case s.Exact:
		return s.countExact(state, 0)
	default:
		return s.readPanes(state).total
	}
}

// CountAt is what the count is at now, which is not before the latest time, if nothing
// happened until then.
func (s *Spec) CountAt(state []byte, now event.Micros) event.Decimal {
	if len(state) == 0 {
		return 0
	}
	now = max(clamp(now), s.Latest(state))
	switch {
	case s.Distinct && s.Kind == Sliding:
		return unitsToDecimal(uint64(s.countRecent(state, now)))
	case s.Distinct:
		return s.countDistinctAt(state, now)
	case s.Kind == Session:
		return s.countSessionAt(state, now)
	case s.Kind == Bucket:
		return s.levelAt(state, now)
	case s.Kind != Sliding:
		return s.readPair(state).countAt(now)
	case s.Exact:
		return s.countExact(state, now-getLatest(state))
	default:
		return s.countPanesAt(state, now)
	}
}

// Bounds is the window that CountAt speaks of: [from, to) of Tumbling, Calendar and Session, (from, to]
// of Sliding; of a Bucket, from now to when it is empty.
func (s *Spec) Bounds(state []byte, now event.Micros) (from, to event.Micros) {
	now = max(clamp(now), s.Latest(state))
	switch {
	case s.Kind == Sliding:
		return now - s.Per, now
	case s.Kind == Bucket && len(state) > 0:
		return now, max(now, s.emptyAt(state))
	case s.Kind == Bucket:
		return now, now
	case len(state) == 0:
	case s.Distinct || s.Kind == Session:
		if f, _ := readFrame(state); now < f.end {
			return f.start, f.end
		}
	default:
		if p := s.readPair(state); now < p.end {
			return p.start, p.end
		}
	}
	f := s.firstFrame(now)
	return f.start, f.end
}

// Below is the first moment, not before the latest time, from which the current window's
// count is below limit if nothing more happens. The limit is positive, and at most ExactLimit
// for an exact sliding window. Of an empty state it is event.NoTime. For a Bucket limit is the
// burst, at least 1, and the moment is when there is one token: the level is at most limit - 1.
func (s *Spec) Below(state []byte, limit event.Decimal) event.Micros {
	switch {
	case len(state) == 0:
		return event.NoTime
	case s.Distinct && s.Kind == Sliding:
		return s.belowRecent(state, limit)
	case s.Distinct:
		return s.belowDistinct(state, limit)
	case s.Kind == Session:
		return s.belowSession(state, limit)
	case s.Kind == Bucket:
		return s.belowBucket(state, limit)
	case s.Kind != Sliding:
		return s.readPair(state).below(limit)
	case s.Exact:
		return s.belowExact(state, limit)
	default:
		return s.belowPanes(state, limit)
	}
}

// Spent is the moment from which the state cannot matter any more: when no event is older
// than that, an empty state gives the same counts from then on. It is not before the latest
// time, and event.NoTime of an empty state.
func (s *Spec) Spent(state []byte) event.Micros {
	switch {
	case len(state) == 0:
		return event.NoTime
	case s.Distinct && s.Kind == Sliding:
		return s.spentRecent(state)
	case s.Distinct || s.Kind == Session:
		f, _ := readFrame(state)
		return s.spentFrame(&f)
	case s.Kind == Bucket:
		return s.emptyAt(state)
	case s.Kind != Sliding:
		return s.spentPair(s.readPair(state))
	case s.Exact:
		return s.spentExact(state)
	default:
		return s.spentPanes(state)
	}
}

// clamp keeps a time where sums and differences with spans cannot overflow.
func clamp(at event.Micros) event.Micros { return min(max(at, -MaxTime), MaxTime) }
