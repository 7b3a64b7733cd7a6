package windows

import "github.com/tallygate/tallygate/event"

// fromFirstValues counts the values in windows that begin with an event.
type fromFirstValues struct{ values }

func (fromFirstValues) validate(s *Spec) error { return fromFirst{}.validate(s) }

func (fromFirstValues) check(s *Spec, state []byte) error {
	r := reader{rest: state}
	f := checkFirst(&r, s)
	return checkValues(&r, s, &f)
}

func (fromFirstValues) addValue(s *Spec, state []byte, at event.Micros, hash uint64) ([]byte, Added) {
	if len(state) == 0 {
		f := firstFrame(s, at)
		state = newValues(state, &f)
	}
	var c sets
	c.read(state)
	return putValue(s, state, &c, placeFirst(s, &c.frame, at), hash)
}

// add moves the latest time on without a value, in a window that there is.
func (fromFirstValues) add(s *Spec, state []byte, at event.Micros, _ event.Decimal) ([]byte, Added) {
	added := Added{Known: true}
	if len(state) == 0 {
		return state, added
	}
	var c sets
	c.read(state)
	f := c.frame
	switch to := placeFirst(s, &f, at); {
	case at >= c.end:
		return state, added
	case at > c.latest:
		c.frame = f
		return moveValues(state, &c, to)
	default:
		added.Late, added.Ended, added.Count = to == nowhere, to == inBefore || to == ownBefore, c.current(state)
		return state, added
	}
}

func (fromFirstValues) bounds(s *Spec, state []byte, now event.Micros) (from, to event.Micros) {
	return fromFirst{}.bounds(s, state, now)
}

func (fromFirstValues) spent(s *Spec, state []byte) event.Micros { return fromFirst{}.spent(s, state) }

func (v fromFirstValues) forget(s *Spec, state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) {
	if state, added = v.add(s, state, to, 0); added.Late {
		return state, added, until
	}
	return v.forgetSets(s, state, to), added, to + 1
}
