package windows

import "github.com/tallygate/tallygate/pipeline/event"

// A session counter's state is the head and the frame, the current session's amount, and the
// amount of the session before as long as that is remembered.

type sessions struct {
	frame
	cur, prev event.Decimal
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

func writeSessions(state []byte, c *sessions) []byte {
	state = newHead(state, formatSession, c.latest)
	state = putFrame(state, formatSession, &c.frame, headBytes)
	state = appendAmount(state, c.cur)
	if c.hasBefore {
		state = appendAmount(state, c.prev)
	}
	return state
}

func (s *Spec) addSession(state []byte, at event.Micros, n event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		return writeSessions(state, &sessions{frame: s.firstFrame(at), cur: n}), Added{Count: n}
	}
	c := readSessions(state)
	added := Added{}
	switch s.place(&c.frame, at) {
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

func (s *Spec) countSessionAt(state []byte, now event.Micros) event.Decimal {
	if c := readSessions(state); now < c.end {
		return c.cur
	}
	return 0
}

func (s *Spec) belowSession(state []byte, limit event.Decimal) event.Micros {
	c := readSessions(state)
	if c.cur < limit {
		return c.latest
	}
	return c.end
}

func (s *Spec) checkSession(state []byte) error {
	r := reader{rest: state}
	f := r.frame(s)
	r.amount(0)
	if f.hasBefore {
		r.amount(0)
	}
	return r.end()
}
