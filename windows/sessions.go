package windows

import "github.com/tallygate/tallygate/event"

// placeSession finds an event's session, and moves the frame on. Events less than Gap apart are one session. The
// session before the current one is held until min(Gap, Lateness) past its end, and remembered for Gap longer: an
// event that belongs to it is then late, and no session of its own.
func placeSession(s *Spec, f *frame, at event.Micros) place {
	hold := min(s.Gap, s.Lateness)
	last := f.closed - s.Gap // of the session before
	switch {
	case at >= f.end:
		old := *f
		*f = newSession(s, at)
		if at >= old.end+hold+s.Gap {
			return opensAlone
		}
		f.hasBefore, f.before, f.closed = true, old.start, old.end
		return opens
	case at > f.start-s.Gap:
		f.latest = max(f.latest, at)
		f.end = f.latest + s.Gap
		f.start = min(f.start, at)
		if f.hasBefore && f.latest < f.closed+hold && at-last < s.Gap {
			f.start, f.hasBefore = f.before, false
			return joins
		}
		if f.hasBefore && (f.latest >= f.closed+hold+s.Gap || at-last < s.Gap) {
			f.hasBefore = false
		}
		return inCurrent
	case f.hasBefore && at <= f.before-s.Gap:
		return nowhere
	case f.hasBefore && at < f.closed:
		if f.latest >= f.closed+hold {
			return nowhere
		}
		f.before, f.closed = min(f.before, at), max(f.closed, at+s.Gap)
		return inBefore
	case f.latest >= at+s.Gap+hold:
		return nowhere
	}
	f.hasBefore, f.before, f.closed = true, at, at+s.Gap
	return ownBefore
}

// finds tells where a moment is that is not later than the latest: in a session, or where none was. It
// lengthens none. count is the current session's.
func (f frame) finds(s *Spec, at event.Micros, count event.Decimal) Added {
	switch placeSession(s, &f, at) {
	case nowhere:
		return Added{Late: true, Count: count}
	case inBefore, ownBefore:
		return Added{Ended: true, Count: count}
	default:
		return Added{Count: count}
	}
}

// newSession is the frame of a session that begins with an event.
func newSession(s *Spec, at event.Micros) frame {
	return frame{latest: at, start: at, end: at + s.Gap}
}

// checkSession reads a head and a frame that may be anything.
func checkSession(r *reader, s *Spec) frame {
	f := checkFrame(r)
	if r.err == nil && (f.end != f.latest+s.Gap ||
		f.hasBefore && (f.closed-f.before < s.Gap || f.latest >= f.closed+min(s.Gap, s.Lateness)+s.Gap)) {
		r.fail(errTime)
	}
	return f
}
