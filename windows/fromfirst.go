package windows

import (
	"errors"

	"github.com/tallygate/tallygate/event"
)

// A window that begins with the first event that counts ends Per after it, whatever comes late: were its start to
// move, so would its end, and what is blocked would be let in early. A counter's state is the head and the frame, the
// current window's amount, and the amount of the window before as long as that is remembered.
type fromFirst struct {
	headed
	amounts
	refunds
	oneForm
}

const formatFromFirst = 0x1a

func (fromFirst) validate(s *Spec) error {
	return errors.Join(checkSpan("lateness", s.Lateness, 0), checkSpan("per", s.Per, 1))
}

func (fromFirst) maxBytes(*Spec) int { return headBytes + (frameVarint+2)*maxVarint }

func (fromFirst) formats() (oldest, newest byte) { return formatFromFirst, formatFromFirst }

func (fromFirst) check(s *Spec, state []byte) error {
	r := reader{rest: state}
	f := checkFirst(&r, s)
	r.amount(0)
	if f.hasBefore {
		r.amount(0)
	}
	return r.end()
}

func (t fromFirst) addSpent(s *Spec, state []byte, at event.Micros, n event.Decimal) (_ []byte, added Added, spent event.Micros, ok bool) {
	state, added = t.add(s, state, at, n)
	return state, added, t.spent(s, state), true
}

// add opens no window for what counts nothing: not even the latest time moves then.
func (fromFirst) add(s *Spec, state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		if n == 0 {
			return state, Added{}
		}
		return writeFirst(state, &sessions{frame: firstFrame(s, at), cur: n}), Added{Count: n}
	}
	c := readSessions(state)
	var added Added
	switch to := placeFirst(s, &c.frame, at); to {
	case nowhere:
		return state, Added{Late: true, Count: c.cur}
	case inCurrent:
		c.cur = c.cur.Plus(n)
	case inBefore:
		c.prev, added.Ended = c.prev.Plus(n), true
	default:
		if n == 0 {
			return state, Added{Ended: to == ownBefore}
		}
		switch to {
		case opens:
			c.prev, c.cur = c.cur, n
		case ownBefore:
			c.prev, added.Ended = n, true
		default:
			c.cur = n
		}
	}
	if added.Count = c.cur; added.Ended {
		added.Count = c.prev
	}
	return writeFirst(state, &c), added
}

func (fromFirst) countAt(s *Spec, state []byte, now event.Micros) event.Decimal {
	return session{}.countAt(s, state, now)
}

// bounds: the next window may begin at any moment.
func (fromFirst) bounds(s *Spec, state []byte, now event.Micros) (from, to event.Micros) {
	if from, to, ok := holdsNow(state, now); ok {
		return from, to
	}
	return now, now + s.Per
}

func (fromFirst) below(s *Spec, state []byte, limit event.Decimal) event.Micros {
	return session{}.below(s, state, limit)
}

// spent: what comes behind the end begins a window in any case. Until the window is not held any more, what it counted
// may be taken back.
func (fromFirst) spent(s *Spec, state []byte) event.Micros {
	f, _ := readFrame(state)
	return f.end + min(s.Per, s.Lateness)
}

func (fromFirst) steps(_ *Spec, state []byte) []Step {
	c := readSessions(state)
	return []Step{{c.end, c.cur}}
}

func (fromFirst) since(s *Spec, state []byte) event.Micros {
	f, _ := readFrame(state)
	return f.reaches(s)
}

func (fromFirst) take(s *Spec, state []byte, at event.Micros, n event.Decimal) []byte {
	c := readSessions(state)
	switch {
	case at >= c.reaches(s) && at < c.end:
		c.cur -= min(c.cur, n)
	case c.hasBefore && at >= c.before && at < c.closed:
		c.prev -= min(c.prev, n)
	}
	return writeFirst(state, &c)
}

func (fromFirst) holds(s *Spec, state []byte, at event.Micros) bool {
	f, _ := readFrame(state)
	return at >= f.reaches(s) && at < f.end || f.holdsBefore(s) && at >= f.before && at < f.closed
}

func (fromFirst) empty(_ *Spec, state []byte, before bool) []byte {
	c := readSessions(state)
	if before {
		c.prev = 0
	} else {
		c.cur = 0
	}
	return writeFirst(state, &c)
}

// forget empties a window that the moment is in, and all that are over by then. The current one goes on. It holds
// moments from its start on: of what is older, and counts in it all the same, nobody knows how much that is.
func (fromFirst) forget(s *Spec, state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) {
	c := readSessions(state)
	f := c.frame
	switch placeFirst(s, &f, to) {
	case nowhere:
		return state, Added{Late: true, Count: c.cur}, until
	case inBefore:
		until, added.Ended = c.closed, true
	case ownBefore:
		until, added.Ended = to+1, true
	case inCurrent:
		if until = c.reaches(s); to >= c.start {
			until, c.cur = c.end, 0
		}
		c.frame = f
	default: // it opens no window
		until, c.cur = to+1, 0
	}
	if c.before <= to {
		c.prev = 0
	}
	if added.Count = c.cur; added.Ended {
		added.Count = c.prev
	}
	return writeFirst(state, &c), added, until
}

func writeFirst(state []byte, c *sessions) []byte { return writeHeld(state, formatFromFirst, c) }

// fromFirstCells: who has no state knows that a window may begin anywhere in the time of one before a moment, and in
// the time of one behind it, when a later event was counted sooner. So long it may hold what happened then.
func fromFirstCells(s *Spec) (grain, offset, keeps event.Micros) { return 1, 0, 2 * s.Per }
