package windows

import (
	"math"
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
)

// An exact counter's state is the head, then the times that were counted, newest first: the
// difference to the newer one (to the latest time at first) in µs, doubled, plus 1 where more
// than one unit follows, which is then a varint of its own.
//
// As many of the newest times are kept as are needed for more than ExactLimit units: limits are at most
// that, so these decide, and every count up to ExactLimit is exact. What is older is the tail, which says by how
// much a count is greater. Its times stay, too, while they are at most tailTimes. When there are more, those of
// one part of the window become one, with the newest one's time: a count is then never too little, and too much by at most
// what came within a tailParts-th of the window before it. That bounds a state, whatever a key does.
//
// States without a tail have the format that they had before there were tails; what older programs
// have dropped is not in their counts.

const (
	tailTimes = 24
	tailParts = 16
)

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

// trimExact drops what slid out, merges a tail of too many times, and counts the rest.
func (s *Spec) trimExact(state []byte) ([]byte, event.Decimal) {
	var age, tailAge event.Micros
	var count uint64
	tail, tailPos, spare := 0, 0, s.spareTimes()
	for pos := headBytes; pos < len(state); {
		gap, units, size := readEntry(state[pos:])
		if age += gap; age >= s.Per {
			state = state[:pos]
			break
		}
		if count > ExactLimit {
			if spare--; spare < 0 {
				if tail++; tail == 1 {
					tailPos, tailAge = pos, age-gap
				}
			}
		}
		count += units
		pos += size
	}
	state[0] = formatExact
	if tail > 0 {
		state[0] = formatTail
	}
	if tail > tailTimes {
		state = s.mergeTail(state, tailPos, tailAge)
	}
	return state, unitsToDecimal(count)
}

// mergeTail makes one of all times behind pos that are in one part; age is that of the entry before them.
func (s *Spec) mergeTail(state []byte, pos int, age event.Micros) []byte {
	var buf [(tailParts + 1) * 2 * maxVarint]byte
	merged, latest := buf[:0], getLatest(state)
	from := age
	var first event.Micros // the age of the part's newest time
	var sum uint64
	for at := pos; at < len(state); {
		gap, units, size := readEntry(state[at:])
		age += gap
		switch {
		case sum > 0 && s.tailPart(latest-age) == s.tailPart(latest-first):
			sum = min(sum+units, maxUnits)
		default:
			if sum > 0 {
				merged, from = appendEntry(merged, first-from, sum), first
			}
			first, sum = age, units
		}
		at += size
	}
	return append(state[:pos], appendEntry(merged, first-from, sum)...)
}

// tailPart is which part of time a moment is in: a window covers, or touches, tailParts+1 of them at most.
func (s *Spec) tailPart(at event.Micros) event.Micros {
	length := (s.Per + tailParts - 1) / tailParts
	part := at / length
	if at%length < 0 {
		part--
	}
	return part
}

// mergedInto is which part of a tail a time was merged into, -1 when it was not. The parts are oldest first.
func (s *Spec) mergedInto(parts []part, at event.Micros) int {
	i := slices.IndexFunc(parts, func(p part) bool { return p.at > at })
	if i < 0 || s.tailPart(parts[i].at) != s.tailPart(at) {
		return -1
	}
	var newer event.Decimal
	for _, p := range parts[i+1:] {
		newer = newer.Plus(p.n)
	}
	if newer <= ExactLimit*event.One {
		return -1 // it is a time of its own
	}
	return i
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
// takes the place of a time, but for the oldest. The tail's times have any number of units.
func (s *Spec) maxBytesExact() int {
	gap := len(appendUvarint(nil, uint64(s.Per)<<1|1))
	return headBytes + (ExactLimit+2)*(gap+1) + 2*maxVarint + (s.spareTimes()+1+tailTimes)*(gap+maxVarint)
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
	spare, tail := s.spareTimes(), 0
	for least := uint64(0); r.more(); least = 1 {
		v := r.number(least<<1, math.MaxUint64)
		units := uint64(1)
		if v&1 == 1 {
			units = r.number(2, maxUnits)
		}
		gap := event.Micros(v >> 1)
		if count > ExactLimit {
			if spare--; spare < 0 {
				tail++
			}
		}
		switch {
		case r.err != nil:
		case gap >= s.Per-age:
			r.fail(errTime)
		case tail > tailTimes, tail > 0 && state[0] == formatExact:
			r.fail(errTrailing)
		}
		age += gap
		count += units
	}
	if tail == 0 && state[0] == formatTail {
		r.fail(errTruncated)
	}
	return r.end()
}
