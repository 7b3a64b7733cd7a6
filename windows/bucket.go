package windows

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/event"
)

// A bucket is the generic cell rate algorithm (ITU-T I.371), exact: what it keeps is by how much
// the theoretical arrival time lies past the latest time, times the limit, so that no division
// ever rounds. Amounts and the limit are millionths both, so an amount n is worth n·Per of
// these units, and a µs drains Limit of them. What is kept divided by Per is the level, whatever the
// limit: a changed limit goes on from the level there is. The level is at most Most, also of a state
// that was written when it could be more. What is kept saturates behind 10^25 years.
//
// A state is the head, and unless the bucket is empty what is kept: a varint of the lower 64
// bits, and one of the upper ones unless they are zero.
type bucket struct {
	onlyHead
	amounts
	noRefunds
	oneForm
}

const formatBucket = 0x16

func (bucket) validate(s *Spec) error {
	errs := []error{checkSpan("per", s.Per, 1)}
	switch {
	case s.Limit < 1:
		errs = append(errs, fmt.Errorf("windows: a bucket's limit is %v, not positive", s.Limit))
	case s.Most < 0:
		errs = append(errs, fmt.Errorf("windows: a bucket's greatest level is %v, below zero", s.Most))
	}
	return errors.Join(errs...)
}

func (bucket) maxBytes(*Spec) int { return headBytes + 2*maxVarint }

func (bucket) formats() (oldest, newest byte) { return formatBucket, formatBucket }

func (bucket) check(_ *Spec, state []byte) error {
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

func (b bucket) addSpent(s *Spec, state []byte, at event.Micros, n event.Decimal) (_ []byte, added Added, spent event.Micros, ok bool) {
	state, latest, debt := b.put(s, state, at, n)
	return state, Added{Count: level(s, debt)}, emptyAt(s, latest, debt), true
}

// add takes any late event: its arrival time is not after the theoretical one.
func (b bucket) add(s *Spec, state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	state, _, debt := b.put(s, state, at, n)
	return state, Added{Count: level(s, debt)}
}

// put adds an amount, and returns what the state holds then.
func (bucket) put(s *Spec, state []byte, at event.Micros, n event.Decimal) (_ []byte, latest event.Micros, debt wide) {
	latest = at
	if len(state) > 0 {
		latest, debt = readBucket(s, state)
	}
	if at > latest {
		debt = drained(s, debt, at-latest)
		latest = at
	}
	debt = bounded(s, debt.plus(product(uint64(n), uint64(s.Per))))
	return writeBucket(state, latest, debt), latest, debt
}

func (bucket) countAt(s *Spec, state []byte, now event.Micros) event.Decimal {
	latest, debt := readBucket(s, state)
	return level(s, drained(s, debt, now-latest))
}

// bounds: from now to when it is empty.
func (b bucket) bounds(s *Spec, state []byte, now event.Micros) (from, to event.Micros) {
	if len(state) == 0 {
		return now, now
	}
	return now, max(now, b.spent(s, state))
}

// full: the level is above burst - 1, so that there is less than one token.
func (bucket) full(burst event.Decimal) event.Decimal { return burst - event.One + 1 }

// below returns the moment at which there is one token.
func (bucket) below(s *Spec, state []byte, burst event.Decimal) event.Micros {
	latest, debt := readBucket(s, state)
	debt = debt.minus(product(uint64(max(burst-event.One, 0)), uint64(s.Per)))
	return latest + event.Micros(debt.over(uint64(s.Limit), uint64(MaxTime)))
}

// spent returns the moment at which nothing is left in the bucket.
func (bucket) spent(s *Spec, state []byte) event.Micros {
	latest, debt := readBucket(s, state)
	return emptyAt(s, latest, debt)
}

func emptyAt(s *Spec, latest event.Micros, debt wide) event.Micros {
	return latest + event.Micros(debt.over(uint64(s.Limit), uint64(MaxTime)))
}

// level returns the bucket's content, rounded up to a millionth: so it is above a whole number of millionths exactly
// when the true level is.
func level(s *Spec, debt wide) event.Decimal {
	return event.Decimal(debt.over(uint64(s.Per), uint64(event.MaxDecimal)))
}

func drained(s *Spec, debt wide, by event.Micros) wide {
	return debt.minus(product(uint64(by), uint64(s.Limit)))
}

func readBucket(s *Spec, state []byte) (latest event.Micros, debt wide) {
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
	return latest, bounded(s, debt)
}

// bounded cuts off what is beyond the greatest level.
func bounded(s *Spec, debt wide) wide {
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
