package windows

import "github.com/tallygate/tallygate/event"

// pairs counts amounts in windows each of which begins where another ends, K says where. A state is a
// pair: the current window, and what is in the one directly before it as long as that is held, until
// min(its length, Lateness) past its end.
type pairs[K pairKind] struct {
	refunds
	amounts
	oneForm
}

type pairKind interface {
	read(s *Spec, state []byte) pair
	write(state []byte, p pair) []byte
	window(s *Spec, at event.Micros) (start, end event.Micros) // the one that holds at
}

type pair struct {
	latest     event.Micros
	start, end event.Micros // of the current window
	cur, prev  event.Decimal
}

func (pairs[K]) add(s *Spec, state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	var k K
	if len(state) == 0 {
		start, end := k.window(s, at)
		return k.write(state, pair{latest: at, start: start, end: end, cur: n}), Added{Count: n}
	}
	p := k.read(s, state)
	var added Added
	switch {
	case at >= p.end:
		p = nextPair[K](s, p, at)
		p.cur = n
		added.Count = p.cur
	case at >= p.start:
		p.cur = p.cur.Plus(n)
		p.latest = max(p.latest, at)
		if p.latest >= p.start+s.Lateness {
			p.prev = 0
		}
		added.Count = p.cur
	case holdsBefore[K](s, p, at):
		p.prev = p.prev.Plus(n)
		added = Added{Ended: true, Count: p.prev}
	default:
		return state, Added{Late: true, Count: p.cur}
	}
	return k.write(state, p), added
}

func (pairs[K]) countAt(s *Spec, state []byte, now event.Micros) event.Decimal {
	var k K
	if p := k.read(s, state); now < p.end {
		return p.cur
	}
	return 0
}

func (pairs[K]) bounds(s *Spec, state []byte, now event.Micros) (from, to event.Micros) {
	var k K
	if len(state) > 0 {
		if p := k.read(s, state); now < p.end {
			return p.start, p.end
		}
	}
	return k.window(s, now)
}

func (pairs[K]) below(s *Spec, state []byte, limit event.Decimal) event.Micros {
	var k K
	p := k.read(s, state)
	if p.cur < limit {
		return p.latest
	}
	return p.end
}

// spent: once a later window is the current one, the window before this one is not the one directly
// before it any more.
func (pairs[K]) spent(s *Spec, state []byte) event.Micros {
	var k K
	switch p := k.read(s, state); {
	case p.cur > 0:
		return p.end + min(p.end-p.start, s.Lateness)
	case p.prev > 0:
		start, _ := k.window(s, p.start-1)
		return max(p.latest, p.start+min(p.start-start, s.Lateness))
	default:
		return p.latest
	}
}

func (pairs[K]) take(s *Spec, state []byte, at event.Micros, n event.Decimal) []byte {
	var k K
	p := k.read(s, state)
	switch {
	case at >= p.end:
		return state
	case at >= p.start:
		p.cur -= min(p.cur, n)
	case p.prev > 0:
		if start, _ := k.window(s, p.start-1); at < start {
			return state
		}
		p.prev -= min(p.prev, n)
	}
	return k.write(state, p)
}

func (pairs[K]) holds(s *Spec, state []byte, at event.Micros) bool {
	var k K
	p := k.read(s, state)
	return at >= p.start || holdsBefore[K](s, p, at)
}

func (pairs[K]) empty(s *Spec, state []byte, before bool) []byte {
	var k K
	p := k.read(s, state)
	if before {
		p.prev = 0
	} else {
		p.cur = 0
	}
	return k.write(state, p)
}

// nextPair moves on to the window of at, which is later than the current one.
func nextPair[K pairKind](s *Spec, p pair, at event.Micros) pair {
	var k K
	next := pair{latest: at}
	next.start, next.end = k.window(s, at)
	if next.start == p.end && at < p.end+min(p.end-p.start, s.Lateness) {
		next.prev = p.cur
	}
	return next
}

// holdsBefore tells whether at, which is before the current window, is in the one directly
// before it, and that is held. The latest time is less than the current window's length past
// its start, so that only a shorter window before it makes a difference to Lateness.
func holdsBefore[K pairKind](s *Spec, p pair, at event.Micros) bool {
	var k K
	if p.latest >= p.start+s.Lateness {
		return false
	}
	start, _ := k.window(s, p.start-1)
	return at >= start && p.latest < p.start+(p.start-start)
}
