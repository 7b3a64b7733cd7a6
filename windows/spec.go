package windows

import (
	"fmt"
	"time"

	"github.com/tallygate/tallygate/event"
)

// Kind is a kind of window.
type Kind uint8

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

// MaxHops bounds Per/Every. A hopping window also keeps the panes of ended windows, so it has as many
// panes at most as a sliding one. A day in minutes is within it.
const MaxHops = MaxPanes / 2

// Remembered bounds the events of a key that may be taken back. An exact sliding window with Refunds keeps so many
// times more than one without. So it knows whether more than ExactLimit units are left, whatever is taken back.
const Remembered = 1024

// MaxTime bounds times and spans: what is later counts as MaxTime, what is earlier than
// -MaxTime as that. It lies beyond the year 11000, and leaves room for sums of spans.
const MaxTime event.Micros = 1 << 58

// Spec describes the windows of a counter. Make it with its fields and call Validate once; it is immutable from then
// on and may be used by many goroutines.
type Spec struct {
	Kind       Kind
	Per        event.Micros   // the length; unused by Calendar and Session
	Offset     event.Micros   // Tumbling, Hopping: what the edges are shifted by; Calendar: the time of day at which days begin
	Every      event.Micros   // Hopping: how far apart windows begin; Per is a multiple of it
	Unit       Unit           // Calendar
	Zone       *time.Location // Calendar; nil is UTC
	WeekStarts time.Weekday   // Calendar weeks; the zero value is Sunday, rules default to Monday
	FirstDay   int            // Calendar months and years: the day of the month on which they begin, or its last one; 0 is the first
	FirstMonth time.Month     // Calendar years: the month in which they begin; 0 is January
	Exact      bool           // Sliding: keep the times; amounts are whole numbers, limits at most ExactLimit
	Resolution event.Micros   // Sliding panes: a pane's length; 0 is Per/60 cut to whole µs, at least 1
	Lateness   event.Micros   // how long at most the window before the current one is held
	Gap        event.Micros   // Session
	Limit      event.Decimal  // Bucket: so much drains in Per
	Most       event.Decimal  // Bucket: the level at most, what is added beyond it is cut off; 0: any level
	Distinct   bool           // count the values that AddValue is given, not amounts; not for Bucket
	Estimate   bool           // Distinct, neither Sliding nor Hopping: more than ExactDistinct values are estimated
	Refunds    bool           // Take takes amounts back; an exact sliding window then keeps more times
}

// Added is the result of adding one amount.
type Added struct {
	Late  bool          // the event was older than what is held: it was counted nowhere
	Ended bool          // it went into an ended window that is still held, not into the current one (Hopping: see Add)
	Known bool          // of AddValue: the window it went into had the value
	Count event.Decimal // of the window it went into, with it; when Late, of the current window
}

func checkSpan(name string, v, least event.Micros) error {
	if v < least || v > MaxTime {
		return fmt.Errorf("windows: %s is %d µs, not between %d and %d", name, v, least, MaxTime)
	}
	return nil
}

// clamp keeps a time where sums and differences with spans cannot overflow.
func clamp(at event.Micros) event.Micros { return min(max(at, -MaxTime), MaxTime) }

// floorDiv divides and rounds down, also below zero.
func floorDiv[T ~int64](a, b T) T {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
