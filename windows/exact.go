package windows

import (
	"math"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// exact counts a sliding window of whole numbers by the times themselves. Its state is the head, then
// the times that were counted, newest first: the difference to the newer one (to the latest time at
// first) in µs, doubled, plus 1 where more than one unit follows, which is then a varint of its own.
//
// As many of the newest times are kept as are needed for more than ExactLimit units. Limits are at
// most that, so these decide, and every count up to ExactLimit is exact. What is older is the tail:
// see exact_tail.go.
type exact struct {
	slides
	amounts
	refunds
}

const (
	formatExact = 0x13
	formatTail  = 0x23 // there is a tail; what older programs have dropped is not in their counts
)

// maxBytes: ExactLimit+1 times of one unit, one more on the way; every number of units takes the
// place of a time, but for the oldest. The tail's times have any number of units.
func (exact) maxBytes(s *Spec) int {
	gap := len(appendUvarint(nil, uint64(s.Per)<<1|1))
	return headBytes + (ExactLimit+2)*(gap+1) + 2*maxVarint + (spareTimes(s)+1+tailTimes)*(gap+maxVarint)
}

func (exact) formats() (oldest, newest byte) { return formatExact, formatTail }

func (exact) check(s *Spec, state []byte) error {
	r := reader{rest: state}
	r.head()
	var age event.Micros
	var count uint64
	spare, tail := spareTimes(s), 0
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

func (e exact) addSpent(s *Spec, state []byte, at event.Micros, n event.Decimal) (_ []byte, added Added, spent event.Micros, ok bool) {
	state, added = e.add(s, state, at, n)
	return state, added, e.spent(s, state), true
}

func (exact) add(s *Spec, state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		state = newHead(state, formatExact, at)
	}
	latest := getLatest(state)
	if at <= latest-s.Per {
		return state, Added{Late: true, Count: countExact(s, state, 0)}
	}
	if at > latest {
		state = advanceExact(state, at-latest)
		putLatest(state, at)
		latest = at
	}
	if units := uint64(n / event.One); units > 0 {
		state = insertExact(state, latest-at, units)
	}
	state, count := trimExact(s, state)
	return state, Added{Count: count}
}

func (exact) countAt(s *Spec, state []byte, now event.Micros) event.Decimal {
	return countExact(s, state, now-getLatest(state))
}

// below: the count stays at limit or more as long as the newest units that make it up
// are in the window; the oldest of these leaves it Per after its time.
func (exact) below(s *Spec, state []byte, limit event.Decimal) event.Micros {
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

func (exact) spent(s *Spec, state []byte) event.Micros {
	latest := getLatest(state)
	if len(state) == headBytes {
		return latest
	}
	gap, _, _ := readEntry(state[headBytes:])
	return latest - gap + s.Per
}

func (e exact) take(s *Spec, state []byte, at event.Micros, n event.Decimal) []byte {
	parts := exactParts(state)
	i := slices.IndexFunc(parts, func(p part) bool { return p.at == at })
	if i < 0 {
		i = mergedInto(s, parts, at)
	}
	if i < 0 {
		return state
	}
	parts[i].n -= min(parts[i].n, n)
	return recount(e, s, state, parts, getLatest(state))
}

func (exact) holds(s *Spec, state []byte, at event.Micros) bool { return at > getLatest(state)-s.Per }

func (exact) empty(_ *Spec, state []byte, _ bool) []byte {
	state[0] = formatExact // without a tail
	return state[:headBytes]
}

// exactParts are the times that are kept, oldest first.
func exactParts(state []byte) (parts []part) {
	at := getLatest(state)
	for pos := headBytes; pos < len(state); {
		gap, units, size := readEntry(state[pos:])
		at -= gap
		parts = append(parts, part{at, unitsToDecimal(units)})
		pos += size
	}
	slices.Reverse(parts)
	return parts
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
func trimExact(s *Spec, state []byte) ([]byte, event.Decimal) {
	var age, tailAge event.Micros
	var count uint64
	tail, tailPos, spare := 0, 0, spareTimes(s)
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
		state = mergeTail(s, state, tailPos, tailAge)
	}
	return state, unitsToDecimal(count)
}

// countExact counts what is in the window that ends past the latest time.
func countExact(s *Spec, state []byte, past event.Micros) event.Decimal {
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
