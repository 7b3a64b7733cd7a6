package windows

import "github.com/tallygate/tallygate/event"

// sessionValues counts the values in sessions.
type sessionValues struct{ values }

func (sessionValues) validate(s *Spec) error { return session{}.validate(s) }

func (sessionValues) check(s *Spec, state []byte) error {
	r := reader{rest: state}
	f := checkSession(&r, s)
	return checkValues(&r, s, &f)
}

func (sessionValues) addValue(s *Spec, state []byte, at event.Micros, hash uint64) ([]byte, Added) {
	if len(state) == 0 {
		f := newSession(s, at)
		state = newValues(state, &f)
	}
	var c sets
	c.read(state)
	return putValue(s, state, &c, placeSession(s, &c.frame, at), hash)
}

// add moves the latest time on without a value. A moment that is not later lengthens no session.
func (sessionValues) add(s *Spec, state []byte, at event.Micros, _ event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		return state, Added{Known: true}
	}
	var c sets
	c.read(state)
	if at <= c.latest {
		added := c.finds(s, at, c.current(state))
		added.Known = true
		return state, added
	}
	return moveValues(state, &c, placeSession(s, &c.frame, at))
}

func (sessionValues) bounds(s *Spec, state []byte, now event.Micros) (from, to event.Micros) {
	return session{}.bounds(s, state, now)
}

func (sessionValues) spent(s *Spec, state []byte) event.Micros { return session{}.spent(s, state) }
