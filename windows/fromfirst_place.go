package windows

import "github.com/tallygate/tallygate/event"

// placeFirst finds the window of an event, and moves the frame on. The window before the current one is held until
// min(Per, Lateness) past its end, and remembered as long as an event that belongs to it could be taken for another
// one's: such an event is late.
//
// What lies between the two counts in the current one if that begins less than Per later: the event would have opened
// it, had it come in time. What is older had a window of its own, which ended where the current one's events begin.
func placeFirst(s *Spec, f *frame, at event.Micros) place {
	switch {
	case at >= f.end:
		old := *f
		*f = firstFrame(s, at)
		f.hasBefore, f.before, f.closed = true, old.start, old.end
		if f.forgets(s) {
			f.forgetBefore()
			return opensAlone
		}
		return opens
	case at >= f.reaches(s):
		f.latest = max(f.latest, at)
		if f.hasBefore && f.forgets(s) {
			f.forgetBefore()
		}
		return inCurrent
	case f.hasBefore && at < f.before:
		return nowhere
	case f.hasBefore && at < f.closed:
		if !f.holdsBefore(s) {
			return nowhere
		}
		return inBefore
	}
	own := *f
	own.hasBefore, own.before, own.closed = true, at, min(at+s.Per, f.start-s.Per+1)
	if !own.holdsBefore(s) {
		return nowhere
	}
	*f = own
	return ownBefore
}

// reaches is the first moment of which an event counts in the current window, or did if it came in time.
func (f *frame) reaches(s *Spec) event.Micros {
	since := f.start - s.Per + 1
	if f.hasBefore {
		since = max(since, f.closed)
	}
	return since
}

// holdsBefore tells whether events still count in the window before.
func (f *frame) holdsBefore(s *Spec) bool {
	return f.hasBefore && f.latest < f.closed+min(s.Per, s.Lateness)
}

// forgets tells whether the window before makes no difference any more: what belongs to it is late without it, too.
func (f *frame) forgets(s *Spec) bool {
	return f.start >= f.closed+s.Per && f.latest >= f.closed+min(s.Per, s.Lateness)+s.Per
}

func (f *frame) forgetBefore() { f.hasBefore, f.before, f.closed = false, 0, 0 }

// firstFrame is the frame of a window that begins with an event.
func firstFrame(s *Spec, at event.Micros) frame {
	return frame{latest: at, start: at, end: at + s.Per}
}

// checkFirst reads a head and a frame that may be anything. A window before that is remembered for too long makes no
// difference.
func checkFirst(r *reader, s *Spec) frame {
	f := checkFrame(r)
	if r.err == nil && (f.end != f.start+s.Per || f.hasBefore && f.closed-f.before > s.Per) {
		r.fail(errTime)
	}
	return f
}
