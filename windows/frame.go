package windows

import (
	"github.com/tallygate/tallygate/pipeline/event"
)

// frame is where the windows of a counter lie whose state keeps them: the current one, and
// the one before it as long as it may matter. On the wire, behind the head:
//
//	uvarint  the latest time less the current window's start
//	uvarint  the current window's length
//	uvarint  0: there is no window before; else 1 + what lies between its end and the current start
//	uvarint  the length of the window before, if there is one
//
// A session's window ends gap after its last event.
type frame struct {
	latest         event.Micros
	start, end     event.Micros // of the current window
	hasBefore      bool
	before, closed event.Micros // of the window before it: [before, closed)
}

// place is where an event goes.
type place uint8

const (
	inCurrent   place = iota
	opens             // a new current window; what was current is the one before
	opensAlone        // a new current window; what was current is not held
	inBefore          // the window before, which may be empty so far
	ownBefore         // a session of its own, which takes the place of the window before
	joins             // the sessions before and now become one
	nowhere           // late
	frameVarint = 4
)

// firstFrame is that of a counter's first event.
func (s *Spec) firstFrame(at event.Micros) frame {
	if s.Kind == Session {
		return frame{latest: at, start: at, end: at + s.Gap}
	}
	f := frame{latest: at}
	f.start, f.end = s.window(at)
	return f
}

// place says where an event at the time at goes, and moves the frame on.
func (s *Spec) place(f *frame, at event.Micros) place {
	if s.Kind == Session {
		return s.placeSession(f, at)
	}
	switch {
	case at >= f.end:
		old := *f
		*f = s.firstFrame(at)
		if f.start == old.end && at < old.end+min(old.end-old.start, s.Lateness) {
			f.hasBefore, f.before, f.closed = true, old.start, old.end
			return opens
		}
		return opensAlone
	case at >= f.start:
		f.latest = max(f.latest, at)
		if f.latest >= f.start+s.Lateness {
			f.hasBefore = false
		}
		return inCurrent
	case f.latest >= f.start+s.Lateness:
		return nowhere
	}
	start, _ := s.window(f.start - 1)
	end := f.start // a state from elsewhere may begin where no unit does
	if at < start || f.latest >= end+(end-start) {
		return nowhere
	}
	f.hasBefore, f.before, f.closed = true, start, end
	return inBefore
}

// placeSession: events less than Gap apart are one session. The session before the current
// one is held until min(Gap, Lateness) past its end, and remembered for Gap longer: an event that
// belongs to it is then late, and no session of its own.
func (s *Spec) placeSession(f *frame, at event.Micros) place {
	hold := min(s.Gap, s.Lateness)
	last := f.closed - s.Gap // of the session before
	switch {
	case at >= f.end:
		old := *f
		*f = s.firstFrame(at)
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

// spentFrame: from the end of what is held on, an empty state counts alike.
func (s *Spec) spentFrame(f *frame) event.Micros {
	if s.Kind == Session {
		return f.end
	}
	return f.end + min(f.end-f.start, s.Lateness)
}

func readFrame(state []byte) (f frame, body int) {
	f.latest, body = getLatest(state), headBytes
	next := func() event.Micros {
		v, n := uvarint(state[body:])
		body += n
		return event.Micros(v)
	}
	f.start = f.latest - next()
	f.end = f.start + next()
	if apart := next(); apart > 0 {
		f.hasBefore = true
		f.closed = f.start - (apart - 1)
		f.before = f.closed - next()
	}
	return f, body
}

// putFrame writes the frame in the place of state[headBytes:body], and the head before it.
func putFrame(state []byte, format byte, f *frame, body int) []byte {
	var buf [frameVarint * maxVarint]byte
	b := appendUvarint(buf[:0], uint64(f.latest-f.start))
	b = appendUvarint(b, uint64(f.end-f.start))
	if f.hasBefore {
		b = appendUvarint(b, uint64(f.start-f.closed)+1)
		b = appendUvarint(b, uint64(f.closed-f.before))
	} else {
		b = append(b, 0)
	}
	state[0] = format
	putLatest(state, f.latest)
	return splice(state, headBytes, body, b)
}

func (r *reader) frame(s *Spec) (f frame) {
	f.latest = r.head()
	span := func(least event.Micros) event.Micros { return event.Micros(r.number(uint64(least), uint64(MaxTime))) }
	past, length := span(0), span(1)
	f.start = f.latest - past
	f.end = f.start + length
	if apart := event.Micros(r.number(0, uint64(MaxTime))); apart > 0 {
		f.hasBefore = true
		f.closed = f.start - (apart - 1)
		f.before = f.closed - span(1)
	}
	switch {
	case r.err != nil:
	case f.start < -2*MaxTime || past >= length, s.Kind == Session && length != past+s.Gap:
		r.fail(errTime)
	case s.Kind == Tumbling || s.Kind == Calendar && f.hasBefore:
		r.checkAligned(s, &f)
	case s.Kind == Session && f.hasBefore && (f.closed-f.before < s.Gap || f.latest >= f.closed+min(s.Gap, s.Lateness)+s.Gap):
		r.fail(errTime)
	}
	return f
}

// checkAligned: tumbling windows follow from the latest time; the window before is the one directly
// before, and held.
func (r *reader) checkAligned(s *Spec, f *frame) {
	if s.Kind == Tumbling {
		if start, end := s.tumblingWindow(f.latest); start != f.start || end != f.end {
			r.fail(errTime)
		}
	}
	if f.hasBefore && (f.closed != f.start || f.latest >= f.start+s.Lateness) {
		r.fail(errTime)
	}
}
