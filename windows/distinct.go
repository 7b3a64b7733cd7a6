package windows

import "github.com/tallygate/tallygate/pipeline/event"

// A distinct counter of windows that do not overlap has for its state the head and the frame,
// the set of the window before as long as that is remembered, and the set of the current one.

// AddValue counts a value of a Distinct Spec, of which hash stands for it, as Add counts an
// amount. Added.Known tells that the value had been counted in the window it went into.
func (s *Spec) AddValue(state []byte, at event.Micros, hash uint64) ([]byte, Added) {
	at = clamp(at)
	if s.Kind == Sliding {
		return s.addRecent(state, at, hash)
	}
	if len(state) == 0 {
		state = newHead(state, formatDistinct, at)
		f := s.firstFrame(at)
		state = append(putFrame(state, formatDistinct, &f, headBytes), 0)
	}
	f, body := readFrame(state)
	cur := body
	if f.hasBefore {
		cur += readSize(state[body:])
	}
	had := f.hasBefore
	to := s.place(&f, at)
	var added Added
	switch to {
	case nowhere:
		v := readSet(state[cur:])
		return state, Added{Late: true, Count: v.count()}
	case opens:
		state = append(splice(state, body, cur, nil), 0)
		cur = body + readSize(state[body:])
	case opensAlone:
		state, cur = append(state[:body], 0), body
	case joins:
		state, cur = s.joinSets(state, body, cur), body
	case inCurrent:
		if had && !f.hasBefore {
			state, cur = splice(state, body, cur, nil), body
		}
	case inBefore:
		added.Ended = true
		if !had {
			state = splice(state, body, body, emptySet[:])
		}
	case ownBefore:
		added.Ended = true
		state = splice(state, body, cur, emptySet[:])
	}
	into := cur
	if added.Ended {
		into = body
	}
	state, added.Known = s.addToSet(state, into, hash)
	v := readSet(state[into:])
	added.Count = v.count()
	return putFrame(state, formatDistinct, &f, body), added
}

var emptySet = [1]byte{0}

// readSize is how many bytes the set has that b begins with.
func readSize(b []byte) int {
	v := readSet(b)
	return v.size
}

// touchDistinct moves the latest time on without a value.
func (s *Spec) touchDistinct(state []byte, at event.Micros) []byte {
	if len(state) == 0 || at <= getLatest(state) {
		return state
	}
	if s.Kind == Sliding {
		putLatest(state, at)
		return s.trimRecent(state)
	}
	f, body := readFrame(state)
	cur := body
	if f.hasBefore {
		cur += readSize(state[body:])
	}
	had := f.hasBefore
	switch s.place(&f, at) {
	case opens:
		state = append(splice(state, body, cur, nil), 0)
	case opensAlone:
		state = append(state[:body], 0)
	default:
		if had && !f.hasBefore {
			state = splice(state, body, cur, nil)
		}
	}
	return putFrame(state, formatDistinct, &f, body)
}

// distinctNow is the frame, and the current window's count.
func distinctNow(state []byte) (f frame, count event.Decimal) {
	f, body := readFrame(state)
	if f.hasBefore {
		body += readSize(state[body:])
	}
	v := readSet(state[body:])
	return f, v.count()
}

func (s *Spec) countDistinctAt(state []byte, now event.Micros) event.Decimal {
	if f, count := distinctNow(state); now < f.end {
		return count
	}
	return 0
}

func (s *Spec) belowDistinct(state []byte, limit event.Decimal) event.Micros {
	f, count := distinctNow(state)
	if count < limit {
		return f.latest
	}
	return f.end
}

func (s *Spec) checkDistinct(state []byte) error {
	r := reader{rest: state}
	f := r.frame(s)
	if f.hasBefore {
		r.set(s)
	}
	r.set(s)
	return r.end()
}
