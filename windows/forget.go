package windows

import "github.com/tallygate/tallygate/event"

// Forget takes out what was counted up to a moment. A later one moves the latest time first, as Add
// with an amount of 0 does; an earlier one changes no window, and neither lengthens nor joins sessions.
// Added tells where the moment is: one that is late changes nothing. Unlike Add it may allocate.
//
// A counter knows what it counted by parts: an exact sliding window by times, others by panes, hops,
// windows or sessions, a Bucket altogether. The part that the moment is in goes as a whole. What was
// counted before until is gone; of a Session and of a Distinct Spec nobody needs to know.
//
// A time that an exact window keeps for others, too (see exact_tail.go), stays when it is later: more
// than ExactLimit units are newer.
func (s *Spec) Forget(state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) {
	to = clamp(to)
	k := s.kind()
	if len(state) == 0 || to > k.latest(state) {
		state, added = k.add(s, state, to, 0)
	}
	if len(state) == 0 {
		return state, added, to + 1
	}
	return k.forget(s, state, to)
}

func (t pairs[K]) forget(s *Spec, state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) {
	var k K
	if state, added = t.add(s, state, to, 0); added.Late {
		return state, added, until
	}
	p := k.read(s, state)
	if _, until = k.window(s, to); p.start < until {
		p.cur = 0
	}
	if p.prev > 0 {
		if start, _ := k.window(s, p.start-1); start < until {
			p.prev = 0
		}
	}
	return k.write(state, p), added, until
}

func (e exact) forget(s *Spec, state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) {
	if state, added = e.add(s, state, to, 0); added.Late {
		return state, added, until
	}
	return recount(e, s, state, after(exactParts(state), to), getLatest(state)), added, to + 1
}

func (p panes) forget(s *Spec, state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) {
	if state, added = p.add(s, state, to, 0); added.Late {
		return state, added, until
	}
	until = event.Micros(paneOf(s, to)+1) * s.Resolution
	return recount(p, s, state, after(paneParts(s, state), to), getLatest(state)), added, until
}

func (t hopping) forget(s *Spec, state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) {
	if state, added = t.add(s, state, to, 0); added.Late {
		return state, added, until
	}
	return recount(t, s, state, after(hopParts(s, state), to), getLatest(state)), added, hopStart(s, hopOf(s, to)+1)
}

// after are the parts that begin after a moment.
func after(parts []part, to event.Micros) []part {
	for len(parts) > 0 && parts[0].at <= to {
		parts = parts[1:]
	}
	return parts
}

func (bucket) forget(_ *Spec, state []byte, _ event.Micros) (_ []byte, added Added, until event.Micros) {
	return state[:headBytes], added, MaxTime
}

func (session) forget(s *Spec, state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) {
	c := readSessions(state)
	if added = c.finds(s, to, c.cur); added.Late {
		return state, added, until
	}
	if c.start <= to {
		c.cur = 0
	}
	if c.before <= to {
		c.prev = 0
	}
	return writeSessions(state, &c), added, to + 1
}

func (v distinct[K]) forget(s *Spec, state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) {
	if state, added = v.add(s, state, to, 0); added.Late {
		return state, added, until
	}
	return v.forgetSets(s, state, to), added, to + 1
}

func (v sessionValues) forget(s *Spec, state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) {
	if state, added = v.add(s, state, to, 0); added.Late {
		return state, added, until
	}
	return v.forgetSets(s, state, to), added, to + 1
}

func (v values) forgetSets(s *Spec, state []byte, to event.Micros) []byte {
	f, _ := readFrame(state)
	if f.hasBefore && f.before <= to {
		state = v.empty(s, state, true)
	}
	if f.start <= to {
		state = v.empty(s, state, false)
	}
	return state
}

// forget keeps the values that came again later.
func (v recent[K]) forget(s *Spec, state []byte, to event.Micros) (_ []byte, added Added, until event.Micros) {
	if state, added = v.add(s, state, to, 0); added.Late {
		return state, added, until
	}
	var k K
	n := recentLen(state)
	for last := k.counted(s, to); n > 0; n-- {
		if _, when := recentAt(state, n-1); when > last {
			break
		}
	}
	return state[:headBytes+n*recentBytes], added, to + 1
}
