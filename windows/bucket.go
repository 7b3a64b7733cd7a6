package windows

import (
	"math/bits"

	"github.com/tallygate/tallygate/pipeline/event"
)

// A bucket is the generic cell rate algorithm (ITU-T I.371), exact: what it keeps is by how much
// the theoretical arrival time lies past the latest time, times the limit, so that no division
// ever rounds. Amounts and the limit are millionths both, so an amount n is worth n·Per of
// these units, and a µs drains Limit of them. What is kept divided by Per is the level, whatever the
// limit: a changed limit goes on from the level there is. The level is at most Most, also of a state that
// was written when it could be more.
//
// A state is the head, and unless the bucket is empty what is kept: a varint of the lower 64
// bits, and one of the upper ones unless they are zero.

type wide struct{ hi, lo uint64 }

// wideMax is where a bucket's debt saturates: behind 10^25 years.
var wideMax = wide{hi: 1 << 62}

func product(a, b uint64) wide {
	hi, lo := bits.Mul64(a, b)
	return wide{hi, lo}
}

func (w wide) less(x wide) bool { return w.hi < x.hi || w.hi == x.hi && w.lo < x.lo }

func (w wide) plus(x wide) wide {
	lo, carry := bits.Add64(w.lo, x.lo, 0)
	hi, over := bits.Add64(w.hi, x.hi, carry)
	if sum := (wide{hi, lo}); over == 0 && sum.less(wideMax) {
		return sum
	}
	return wideMax
}

// minus is not less than zero.
func (w wide) minus(x wide) wide {
	lo, borrow := bits.Sub64(w.lo, x.lo, 0)
	hi, under := bits.Sub64(w.hi, x.hi, borrow)
	if under != 0 {
		return wide{}
	}
	return wide{hi, lo}
}

// over divides and rounds up, to at most most.
func (w wide) over(d, most uint64) uint64 {
	if w.hi >= d {
		return most
	}
	q, rest := bits.Div64(w.hi, w.lo, d)
	if q >= most {
		return most
	}
	if rest > 0 {
		q++
	}
	return q
}

func (s *Spec) readBucket(state []byte) (latest event.Micros, debt wide) {
	latest = getLatest(state)
	rest := state[headBytes:]
	if len(rest) == 0 {
		return latest, debt
	}
	var n int
	debt.lo, n = uvarint(rest)
	if rest = rest[n:]; len(rest) > 0 {
		debt.hi, _ = uvarint(rest)
	}
	return latest, s.bounded(debt)
}

// bounded cuts off what is beyond the greatest level.
func (s *Spec) bounded(debt wide) wide {
	if most := product(uint64(s.Most), uint64(s.Per)); s.Most > 0 && most.less(debt) {
		return most
	}
	return debt
}

func writeBucket(state []byte, latest event.Micros, debt wide) []byte {
	state = newHead(state, formatBucket, latest)
	if debt == (wide{}) {
		return state
	}
	state = appendUvarint(state, debt.lo)
	if debt.hi > 0 {
		state = appendUvarint(state, debt.hi)
	}
	return state
}

// addBucket takes any late event: its arrival time is not after the theoretical one.
func (s *Spec) addBucket(state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	latest, debt := at, wide{}
	if len(state) > 0 {
		latest, debt = s.readBucket(state)
	}
	if at > latest {
		debt = s.drained(debt, at-latest)
		latest = at
	}
	debt = s.bounded(debt.plus(product(uint64(n), uint64(s.Per))))
	return writeBucket(state, latest, debt), Added{Count: s.level(debt)}
}

func (s *Spec) drained(debt wide, by event.Micros) wide {
	return debt.minus(product(uint64(by), uint64(s.Limit)))
}

// level is what is in the bucket, rounded up to a millionth: so it is above a whole number of
// millionths exactly when the true level is.
func (s *Spec) level(debt wide) event.Decimal {
	return event.Decimal(debt.over(uint64(s.Per), uint64(event.MaxDecimal)))
}

func (s *Spec) levelAt(state []byte, now event.Micros) event.Decimal {
	latest, debt := s.readBucket(state)
	return s.level(s.drained(debt, now-latest))
}

// belowBucket is when there is one token of a bucket that holds burst: when the level is at
// most burst - 1.
func (s *Spec) belowBucket(state []byte, burst event.Decimal) event.Micros {
	latest, debt := s.readBucket(state)
	debt = debt.minus(product(uint64(max(burst-event.One, 0)), uint64(s.Per)))
	return latest + event.Micros(debt.over(uint64(s.Limit), uint64(MaxTime)))
}

// emptyAt is when nothing is left in the bucket.
func (s *Spec) emptyAt(state []byte) event.Micros {
	latest, debt := s.readBucket(state)
	return latest + event.Micros(debt.over(uint64(s.Limit), uint64(MaxTime)))
}

func (s *Spec) checkBucket(state []byte) error {
	r := reader{rest: state}
	r.head()
	if !r.more() {
		return r.end()
	}
	debt := wide{lo: r.number(0, 1<<64-1)}
	if r.more() {
		debt.hi = r.number(1, wideMax.hi)
	}
	if r.err == nil && (debt == (wide{}) || wideMax.less(debt)) {
		r.fail(errRange)
	}
	return r.end()
}
