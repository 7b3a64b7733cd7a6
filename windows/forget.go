package windows

import "github.com/tallygate/tallygate/pipeline/event"

// Forget takes out what was counted up to a moment, which is not late: Add with an amount of 0 at
// that moment comes first. It moves no time. Unlike Add it may allocate.
//
// A counter knows what it counted by parts: an exact sliding window by times, others by panes, hops,
// windows or sessions, a Bucket altogether. The part that the moment is in goes as a whole. What was
// counted before until is gone; of a Session and of a Distinct Spec nobody needs to know.
//
// A time that an exact window keeps for others, too (see exact_tail.go), stays when it is later: more
// than ExactLimit units are newer.
func (s *Spec) Forget(state []byte, to event.Micros) (_ []byte, until event.Micros) {
	to = clamp(to)
	if len(state) == 0 {
		return state, to + 1
	}
	return s.kind().forget(s, state, to)
}

func (pairs[K]) forget(s *Spec, state []byte, to event.Micros) (_ []byte, until event.Micros) {
	var k K
	p := k.read(s, state)
	if _, until = k.window(s, to); p.start < until {
		p.cur = 0
	}
	if p.prev > 0 {
		if start, _ := k.window(s, p.start-1); start < until {
			p.prev = 0
		}
	}
	return k.write(state, p), until
}

func (e exact) forget(s *Spec, state []byte, to event.Micros) (_ []byte, until event.Micros) {
	return recount(e, s, state, after(exactParts(state), to), getLatest(state)), to + 1
}

func (p panes) forget(s *Spec, state []byte, to event.Micros) (_ []byte, until event.Micros) {
	until = event.Micros(paneOf(s, to)+1) * s.Resolution
	return recount(p, s, state, after(paneParts(s, state), to), getLatest(state)), until
}

func (t hopping) forget(s *Spec, state []byte, to event.Micros) (_ []byte, until event.Micros) {
	return recount(t, s, state, after(hopParts(s, state), to), getLatest(state)), hopStart(s, hopOf(s, to)+1)
}

// after are the parts that begin after a moment.
func after(parts []part, to event.Micros) []part {
	for len(parts) > 0 && parts[0].at <= to {
		parts = parts[1:]
	}
	return parts
}

func (bucket) forget(_ *Spec, state []byte, _ event.Micros) (_ []byte, until event.Micros) {
	return state[:headBytes], MaxTime
}

func (session) forget(_ *Spec, state []byte, to event.Micros) (_ []byte, until event.Micros) {
	c := readSessions(state)
	if c.start <= to {
		c.cur = 0
	}
	if c.before <= to {
		c.prev = 0
	}
	return writeSessions(state, &c), to + 1
}

func (v values) forget(s *Spec, state []byte, to event.Micros) (_ []byte, until event.Micros) {
	f, _ := readFrame(state)
	if f.hasBefore && f.before <= to {
		state = v.empty(s, state, true)
	}
	if f.start <= to {
		state = v.empty(s, state, false)
	}
	return state, to + 1
}

// forget keeps the values that came again later.
func (recent[K]) forget(s *Spec, state []byte, to event.Micros) (_ []byte, until event.Micros) {
	var k K
	n := recentLen(state)
	for last := k.counted(s, to); n > 0; n-- {
		if _, when := recentAt(state, n-1); when > last {
			break
		}
	}
	return state[:headBytes+n*recentBytes], to + 1
}
