package windows

import (
	"errors"

	"github.com/tallygate/tallygate/event"
)

// A tumbling counter's state is the head, the current window's amount, and the amount of the
// window before it unless that is zero. The window itself follows from the latest time.
type tumbling struct {
	pairs[tumbling]
	headed
}

const formatTumbling = 0x11

func (tumbling) validate(s *Spec) error {
	return errors.Join(checkSpan("lateness", s.Lateness, 0), checkSpan("per", s.Per, 1), checkSpan("offset", s.Offset, -MaxTime))
}

func (tumbling) maxBytes(*Spec) int { return headBytes + 2*maxVarint }

func (tumbling) formats() (oldest, newest byte) { return formatTumbling, formatTumbling }

func (t tumbling) check(s *Spec, state []byte) error {
	r := reader{rest: state}
	latest := r.head()
	r.amount(0)
	if r.more() {
		r.amount(1)
		if start, _ := t.window(s, latest); latest >= start+s.Lateness {
			r.fail(errTime)
		}
	}
	return r.end()
}

// addSpent adds to the current window; the one before it stays as it is.
func (t tumbling) addSpent(s *Spec, state []byte, at event.Micros, n event.Decimal) (_ []byte, added Added, spent event.Micros, ok bool) {
	latest := getLatest(state)
	start, end := t.window(s, latest)
	cur, size := readAmount(state[headBytes:])
	rest := headBytes + size
	count := cur + n
	if at < start || at >= end || count < 0 || rest < len(state) && at >= start+s.Lateness {
		return state, Added{}, 0, false
	}
	if at > latest {
		putLatest(state, at)
	}
	if rest == len(state) {
		state = appendAmount(state[:headBytes], count)
	} else {
		var buf [maxVarint]byte
		state = splice(state, headBytes, rest, appendAmount(buf[:0], count))
	}
	return state, Added{Count: count}, end + min(s.Per, s.Lateness), true
}

func (t tumbling) read(s *Spec, state []byte) pair {
	p := pair{latest: getLatest(state)}
	p.start, p.end = t.window(s, p.latest)
	var n int
	p.cur, n = readAmount(state[headBytes:])
	if rest := state[headBytes+n:]; len(rest) > 0 {
		p.prev, _ = readAmount(rest)
	}
	return p
}

func (tumbling) write(state []byte, p pair) []byte {
	state = newHead(state, formatTumbling, p.latest)
	state = appendAmount(state, p.cur)
	if p.prev > 0 {
		state = appendAmount(state, p.prev)
	}
	return state
}

func (t tumbling) fits(s *Spec, latest, start, end event.Micros) bool {
	from, to := t.window(s, latest)
	return start == from && end == to
}

func (tumbling) window(s *Spec, at event.Micros) (start, end event.Micros) {
	start = floorDiv(at-s.Offset, s.Per)*s.Per + s.Offset
	return start, start + s.Per
}

func tumblingCells(s *Spec) (grain, offset, keeps event.Micros) { return s.Per, s.Offset, s.Per }
