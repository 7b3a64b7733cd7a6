package windows

import "github.com/tallygate/tallygate/pipeline/event"

// A tumbling counter's state is the head, the current window's amount, and the amount of the
// window before it unless that is zero. The window itself follows from the latest time.

func (s *Spec) tumblingWindow(at event.Micros) (start, end event.Micros) {
	start = floorDiv(at-s.Offset, s.Per)*s.Per + s.Offset
	return start, start + s.Per
}

func (s *Spec) readTumbling(state []byte) pair {
	p := pair{latest: getLatest(state)}
	p.start, p.end = s.tumblingWindow(p.latest)
	var n int
	p.cur, n = readAmount(state[headBytes:])
	if rest := state[headBytes+n:]; len(rest) > 0 {
		p.prev, _ = readAmount(rest)
	}
	return p
}

func writeTumbling(state []byte, p pair) []byte {
	state = newHead(state, formatTumbling, p.latest)
	state = appendAmount(state, p.cur)
	if p.prev > 0 {
		state = appendAmount(state, p.prev)
	}
	return state
}

func (s *Spec) checkTumbling(state []byte) error {
	r := reader{rest: state}
	latest := r.head()
	r.amount(0)
	if r.more() {
		r.amount(1)
		if start, _ := s.tumblingWindow(latest); latest >= start+s.Lateness {
			r.fail(errTime)
		}
	}
	return r.end()
}

// floorDiv divides and rounds down, also below zero.
func floorDiv[T ~int64](a, b T) T {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
