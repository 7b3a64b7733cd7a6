package windows

import "github.com/tallygate/tallygate/pipeline/event"

// pair is the state of a tumbling or calendar counter: the current window, and what is in
// the one directly before it as long as that is held.
type pair struct {
	latest     event.Micros
	start, end event.Micros // of the current window
	cur, prev  event.Decimal
}

func (s *Spec) addPair(state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		start, end := s.window(at)
		return s.writePair(state, pair{latest: at, start: start, end: end, cur: n}), Added{Count: n}
	}
	p := s.readPair(state)
	var added Added
	switch {
	case at >= p.end:
		p = s.nextPair(p, at)
		p.cur = n
		added.Count = p.cur
	case at >= p.start:
		p.cur = p.cur.Plus(n)
		p.latest = max(p.latest, at)
		if p.latest >= p.start+s.Lateness {
			p.prev = 0
		}
		added.Count = p.cur
	case s.holdsBefore(p, at):
		p.prev = p.prev.Plus(n)
		added = Added{Ended: true, Count: p.prev}
	default:
		return state, Added{Late: true, Count: p.cur}
	}
	return s.writePair(state, p), added
}

// nextPair moves on to the window of at, which is later than the current one.
func (s *Spec) nextPair(p pair, at event.Micros) pair {
	next := pair{latest: at}
	next.start, next.end = s.window(at)
	if next.start == p.end && at < p.end+min(p.end-p.start, s.Lateness) {
		next.prev = p.cur
	}
	return next
}

// holdsBefore tells whether at, which is before the current window, is in the one directly
// before it, and that is held. The latest time is less than the current window's length past
// its start, so that only a shorter window before it makes a difference to Lateness.
func (s *Spec) holdsBefore(p pair, at event.Micros) bool {
	if p.latest >= p.start+s.Lateness {
		return false
	}
	start, _ := s.window(p.start - 1)
	return at >= start && p.latest < p.start+(p.start-start)
}

func (p pair) countAt(now event.Micros) event.Decimal {
	if now < p.end {
		return p.cur
	}
	return 0
}

func (p pair) below(limit event.Decimal) event.Micros {
	if p.cur < limit {
		return p.latest
	}
	return p.end
}

// spentPair: once a later window is the current one, the window before this one is not the
// one directly before it any more.
func (s *Spec) spentPair(p pair) event.Micros {
	switch {
	case p.cur > 0:
		return p.end + min(p.end-p.start, s.Lateness)
	case p.prev > 0:
		start, _ := s.window(p.start - 1)
		return max(p.latest, p.start+min(p.start-start, s.Lateness))
	default:
		return p.latest
	}
}

// window is the one that holds at.
func (s *Spec) window(at event.Micros) (start, end event.Micros) {
	if s.Kind == Calendar {
		return s.civilWindow(at)
	}
	return s.tumblingWindow(at)
}

func (s *Spec) readPair(state []byte) pair {
	if s.Kind == Calendar {
		return readCalendar(state)
	}
	return s.readTumbling(state)
}

func (s *Spec) writePair(state []byte, p pair) []byte {
	if s.Kind == Calendar {
		return writeCalendar(state, p)
	}
	return writeTumbling(state, p)
}
