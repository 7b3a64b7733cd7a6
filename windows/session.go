package windows

import (
	"errors"

	"github.com/tallygate/tallygate/event"
)

// A session ends Gap after its last event. A session counter's state is the head and the frame, the
// current session's amount, and the amount of the session before as long as that is remembered.
type session struct {
	headed
	amounts
	noRefunds
	oneForm
}

const formatSession = 0x15

func (session) validate(s *Spec) error {
	return errors.Join(checkSpan("lateness", s.Lateness, 0), checkSpan("gap", s.Gap, 1))
}

func (session) maxBytes(*Spec) int { return headBytes + (frameVarint+2)*maxVarint }

func (session) formats() (oldest, newest byte) { return formatSession, formatSession }

func (session) check(s *Spec, state []byte) error {
	r := reader{rest: state}
	f := checkSession(&r, s)
	r.amount(0)
	if f.hasBefore {
		r.amount(0)
	}
	return r.end()
}

func (t session) addSpent(s *Spec, state []byte, at event.Micros, n event.Decimal) (_ []byte, added Added, spent event.Micros, ok bool) {
	state, added = t.add(s, state, at, n)
	return state, added, t.spent(s, state), true
}

func (session) add(s *Spec, state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		return writeSessions(state, &sessions{frame: newSession(s, at), cur: n}), Added{Count: n}
	}
	c := readSessions(state)
	var added Added
	switch placeSession(s, &c.frame, at) {
	case nowhere:
		return state, Added{Late: true, Count: c.cur}
	case inCurrent:
		c.cur = c.cur.Plus(n)
	case opens:
		c.prev, c.cur = c.cur, n
	case opensAlone:
		c.cur = n
	case joins:
		c.cur = c.cur.Plus(c.prev).Plus(n)
	case inBefore:
		c.prev, added.Ended = c.prev.Plus(n), true
	case ownBefore:
		c.prev, added.Ended = n, true
	}
	if added.Count = c.cur; added.Ended {
		added.Count = c.prev
	}
	return writeSessions(state, &c), added
}

func (session) countAt(_ *Spec, state []byte, now event.Micros) event.Decimal {
	if c := readSessions(state); now < c.end {
		return c.cur
	}
	return 0
}

func (session) bounds(s *Spec, state []byte, now event.Micros) (from, to event.Micros) {
	if from, to, ok := holdsNow(state, now); ok {
		return from, to
	}
	return now, now + s.Gap
}

func (session) below(_ *Spec, state []byte, limit event.Decimal) event.Micros {
	c := readSessions(state)
	if c.cur < limit {
		return c.latest
	}
	return c.end
}

func (session) spent(_ *Spec, state []byte) event.Micros {
	f, _ := readFrame(state)
	return f.end
}

func (session) empty(_ *Spec, state []byte, before bool) []byte {
	c := readSessions(state)
	if before {
		c.prev = 0
	} else {
		c.cur = 0
	}
	return writeSessions(state, &c)
}

type sessions struct {
	frame
	cur, prev event.Decimal // of the current session, and of the one before it
}

func readSessions(state []byte) (c sessions) {
	f, body := readFrame(state)
	c.frame = f
	var n int
	c.cur, n = readAmount(state[body:])
	if f.hasBefore {
		c.prev, _ = readAmount(state[body+n:])
	}
	return c
}

func writeSessions(state []byte, c *sessions) []byte { return writeHeld(state, formatSession, c) }

// writeHeld writes two windows and their amounts, of a kind that has the format.
func writeHeld(state []byte, format byte, c *sessions) []byte {
	state = newHead(state, format, c.latest)
	state = putFrame(state, format, &c.frame, headBytes)
	state = appendAmount(state, c.cur)
	if c.hasBefore {
		state = appendAmount(state, c.prev)
	}
	return state
}
