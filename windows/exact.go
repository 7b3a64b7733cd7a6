package windows

import (
	"math"

	"github.com/tallygate/tallygate/pipeline/event"
)

// An exact counter's state is the head, then the times that were counted, newest first: the
// difference to the newer one (to the latest time at first) in µs, doubled, plus 1 where more
// than one unit follows, which is then a varint of its own.
//
// Only as many of the newest times are kept as are needed for more than ExactLimit units:
// what is dropped slides out before them, so every count up to ExactLimit is exact, and a
// greater one is at least ExactLimit+1. That bounds a state, whatever a key does.

const maxUnits = uint64(event.MaxDecimal / event.One)

func readEntry(b []byte) (gap event.Micros, units uint64, size int) {
	v, size := uvarint(b)
	units = 1
	if v&1 == 1 {
		var n int
		units, n = uvarint(b[size:])
		size += n
	}
	return event.Micros(v >> 1), units, size
}

func appendEntry(b []byte, gap event.Micros, units uint64) []byte {
	if units == 1 {
		return appendUvarint(b, uint64(gap)<<1)
	}
	b = appendUvarint(b, uint64(gap)<<1|1)
	return appendUvarint(b, units)
}

func (s *Spec) addExact(state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		state = newHead(state, formatExact, at)
	}
	latest := getLatest(state)
	if at <= latest-s.Per {
		return state, Added{Late: true, Count: s.countExact(state, 0)}
	}
	if at > latest {
		state = advanceExact(state, at-latest)
		putLatest(state, at)
		latest = at
	}
	if units := uint64(n / event.One); units > 0 {
		state = insertExact(state, latest-at, units)
	}
	state, count := s.trimExact(state)
	return state, Added{Count: count}
}

// advanceExact widens the gap between the latest time and the newest entry.
func advanceExact(state []byte, by event.Micros) []byte {
	if len(state) == headBytes {
		return state
	}
	gap, units, size := readEntry(state[headBytes:])
	var buf [2 * maxVarint]byte
	return splice(state, headBytes, headBytes+size, appendEntry(buf[:0], gap+by, units))
}

// insertExact adds units at the given age, seen from the latest time.
func insertExact(state []byte, age event.Micros, units uint64) []byte {
	var buf [4 * maxVarint]byte
	for pos := headBytes; pos < len(state); {
		gap, have, size := readEntry(state[pos:])
		switch {
		case gap == age:
			repl := appendEntry(buf[:0], gap, min(have+units, maxUnits))
			return splice(state, pos, pos+size, repl)
		case gap > age:
			repl := appendEntry(buf[:0], age, units)
			repl = appendEntry(repl, gap-age, have)
			return splice(state, pos, pos+size, repl)
		}
		age -= gap
		pos += size
	}
	return appendEntry(state, age, units)
}

// trimExact drops what slid out, and what is older than ExactLimit+1 units, and counts the rest.
func (s *Spec) trimExact(state []byte) ([]byte, event.Decimal) {
	var age event.Micros
	var count uint64
	for pos, spare := headBytes, s.spareTimes(); pos < len(state); {
		gap, units, size := readEntry(state[pos:])
		if age += gap; age >= s.Per || count > ExactLimit && spare == 0 {
			state = state[:pos]
			break
		}
		if count > ExactLimit {
			spare--
		}
		count += units
		pos += size
	}
	return state, unitsToDecimal(count)
}

// countExact counts what is in the window that ends past the latest time.
func (s *Spec) countExact(state []byte, past event.Micros) event.Decimal {
	age := past
	var count uint64
	for pos := headBytes; pos < len(state); {
		gap, units, size := readEntry(state[pos:])
		if age += gap; age >= s.Per {
			break
		}
		count += units
		pos += size
	}
	return unitsToDecimal(count)
}

// belowExact: the count stays at limit or more as long as the newest units that make it up
// are in the window; the oldest of these leaves it Per after its time.
func (s *Spec) belowExact(state []byte, limit event.Decimal) event.Micros {
	latest := getLatest(state)
	at := latest
	var count uint64
	for pos := headBytes; pos < len(state); {
		gap, units, size := readEntry(state[pos:])
		at -= gap
		count += units
		if unitsToDecimal(count) >= limit {
			return at + s.Per
		}
		pos += size
	}
	return latest
}

func (s *Spec) spentExact(state []byte) event.Micros {
	latest := getLatest(state)
	if len(state) == headBytes {
		return latest
	}
	gap, _, _ := readEntry(state[headBytes:])
	return latest - gap + s.Per
}

func unitsToDecimal(units uint64) event.Decimal {
	return event.Decimal(min(units, maxUnits)) * event.One
}

// maxBytesExact: ExactLimit+1 times of one unit, one more on the way; every number of units
// takes the place of a time, but for the oldest.
func (s *Spec) maxBytesExact() int {
	gap := len(appendUvarint(nil, uint64(s.Per)<<1|1))
	return headBytes + (ExactLimit+2)*(gap+1) + 2*maxVarint + (s.spareTimes()+1)*(gap+maxVarint)
}

// spareTimes is how many times more are kept than are needed for ExactLimit+1 units.
func (s *Spec) spareTimes() int {
	if s.Refunds {
		return Remembered
	}
	return 0
}

func (s *Spec) checkExact(state []byte) error {
	r := reader{rest: state}
	r.head()
	var age event.Micros
	var count uint64
	spare := s.spareTimes()
	for least := uint64(0); r.more(); least = 1 {
		v := r.number(least<<1, math.MaxUint64)
		units := uint64(1)
		if v&1 == 1 {
			units = r.number(2, maxUnits)
		}
		gap := event.Micros(v >> 1)
		switch {
		case r.err != nil:
		case gap >= s.Per-age:
			r.fail(errTime)
		case count > ExactLimit && spare == 0:
			r.fail(errTrailing)
		case count > ExactLimit:
			spare--
		}
		age += gap
		count += units
	}
	return r.end()
}
