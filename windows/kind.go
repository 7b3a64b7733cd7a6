package windows

import (
	"fmt"

	"github.com/tallygate/tallygate/event"
)

// The kinds of windows.
const (
	Tumbling  Kind = iota + 1 // [k·Per, (k+1)·Per), aligned to the Unix epoch plus Offset
	Calendar                  // the civil Unit that holds the time, in Zone
	Sliding                   // (t-Per, t]
	Session                   // events less than Gap apart
	Bucket                    // the generic cell rate algorithm: Limit per Per
	Hopping                   // [k·Every, k·Every+Per) for each k, aligned to the Unix epoch plus Offset
	FromFirst                 // Per long, from the first event that counts
)

// kinds is the table of all kinds, and the only place that tells them apart. A kind is one file, and
// one entry here.
var kinds = [...]struct {
	name    string
	amounts kind
	exact   kind   // what counts amounts of an Exact Spec; nil: amounts does
	values  kind   // what counts distinct values; nil: nothing does
	frees   string // see Kind.Frees
	slides  bool   // see Kind.Slides
	hops    bool   // see Spec.Overlap
	rate    bool   // see Kind.HasRate
	follows bool   // see Kind.Follows

	cells func(s *Spec) (grain, offset, keeps event.Micros) // see Spec.Cells; nil: it has none
}{
	Tumbling:  {name: "tumbling", amounts: tumbling{}, values: distinct[tumbling]{}, frees: "the window's end", cells: tumblingCells},
	Calendar:  {name: "calendar", amounts: calendar{}, values: distinct[calendar]{}, frees: "the window's end"},
	Sliding:   {name: "sliding", amounts: panes{}, exact: exact{}, values: recent[slides]{}, frees: "events slide out", slides: true, cells: slidingCells},
	Session:   {name: "session", amounts: session{}, values: sessionValues{}, frees: "the session's end"},
	Bucket:    {name: "bucket", amounts: bucket{}, frees: "the bucket drains", rate: true},
	Hopping:   {name: "hopping", amounts: hopping{}, values: recent[hopping]{}, frees: "enough windows end", hops: true, cells: hoppingCells},
	FromFirst: {name: "from-first", amounts: fromFirst{}, values: fromFirstValues{}, frees: "the window's end", follows: true, cells: fromFirstCells},
}

// String is the kind's name in rule files.
func (k Kind) String() string {
	if k.unknown() {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return kinds[k].name
}

// CountsValues tells whether its Specs may be Distinct.
func (k Kind) CountsValues() bool { return kinds[k].values != nil }

// Frees says, in words, what lowers a count.
func (k Kind) Frees() string { return kinds[k].frees }

// Slides tells whether there is a window at every moment, so that there is none before the current one.
func (k Kind) Slides() bool { return kinds[k].slides }

// HasRate tells whether a limit is a rate that the counter itself needs: Spec.Limit. When there is room
// again each event puts off, by as much as it counts.
func (k Kind) HasRate() bool { return kinds[k].rate }

// Follows tells whether a window of Per begins with an event: who has no state can't know where.
func (k Kind) Follows() bool { return kinds[k].follows }

// Cells divides time for who counts without a state, as permits do: what happens in a cell, which is grain long and
// begins at a multiple of it plus offset, counts until keeps after the cell's begin. Without cells ok is false: the
// windows' ends are those of Bounds, or there are none.
func (s *Spec) Cells() (grain, offset, keeps event.Micros, ok bool) {
	cells := kinds[s.Kind].cells
	if cells == nil {
		return 0, 0, 0, false
	}
	grain, offset, keeps = cells(s)
	return grain, offset, keeps, true
}

func (k Kind) unknown() bool { return k < Tumbling || int(k) >= len(kinds) }

// kind implements Specs of one kind. It is a type without a size: all it knows is in the Spec and in the state. What
// several kinds have in common they embed: see common.go.
//
// States are well-formed. They are empty for add, addValue and bounds only. Times are clamped.
type kind interface {
	validate(s *Spec) error            // what is wrong with the fields that it uses; sets their defaults
	refundable() bool                  // see Spec.Refundable
	estimates() bool                   // see Spec.Estimates
	maxBytes(s *Spec) int              // see Spec.MaxBytes
	formats() (oldest, newest byte)    // the first bytes of its states
	check(s *Spec, state []byte) error // what is wrong with a state that may be anything behind its first byte

	// add is Spec.Add, and addValue Spec.AddValue.
	add(s *Spec, state []byte, at event.Micros, n event.Decimal) ([]byte, Added)
	addValue(s *Spec, state []byte, at event.Micros, hash uint64) ([]byte, Added)

	// addSpent is add and spent in one, of a positive amount and a state that is not empty. Most events
	// are not older than the latest one, and fall into the current window: a kind can do that in one
	// pass over the state, mostly in place. Where there is more to do it changes nothing and reports
	// false, and add does all of it.
	addSpent(s *Spec, state []byte, at event.Micros, n event.Decimal) (_ []byte, added Added, spent event.Micros, ok bool)

	latest(state []byte) event.Micros
	countAt(s *Spec, state []byte, now event.Micros) event.Decimal
	bounds(s *Spec, state []byte, now event.Micros) (from, to event.Micros)
	full(limit event.Decimal) event.Decimal
	below(s *Spec, state []byte, limit event.Decimal) event.Micros
	spent(s *Spec, state []byte) event.Micros

	take(s *Spec, state []byte, at event.Micros, n event.Decimal) []byte
	holds(s *Spec, state []byte, at event.Micros) bool
	empty(s *Spec, state []byte, before bool) []byte
	forget(s *Spec, state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) // to is not later than the latest time
	carry(s *Spec, state []byte, from *Spec) []byte
}

// kind looks the Spec's kind up. It is not kept in the Spec: a copy with other fields would keep it too.
func (s *Spec) kind() kind {
	k := &kinds[s.Kind]
	switch {
	case s.Distinct && k.values != nil:
		return k.values
	case s.Exact && k.exact != nil:
		return k.exact
	default:
		return k.amounts
	}
}
