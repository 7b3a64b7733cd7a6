package windows

import "github.com/tallygate/tallygate/event"

// distinct counts the values in windows each of which begins where another ends, K says where. The
// window directly before the current one is held until min(its length, Lateness) past its end.
type distinct[K valueKind] struct{ values }

// valueKind is the kind that counts amounts in the same windows.
type valueKind interface {
	validate(s *Spec) error
	window(s *Spec, at event.Micros) (start, end event.Micros)
	fits(s *Spec, latest, start, end event.Micros) bool // these may be the edges of the latest time's window
}

func (distinct[K]) validate(s *Spec) error {
	var k K
	return k.validate(s)
}

func (distinct[K]) check(s *Spec, state []byte) error {
	var k K
	r := reader{rest: state}
	f := checkFrame(&r)
	if r.err == nil && (!k.fits(s, f.latest, f.start, f.end) || f.hasBefore && (f.closed != f.start || f.latest >= f.start+s.Lateness)) {
		r.fail(errTime)
	}
	return checkValues(&r, s, &f)
}

func (distinct[K]) addValue(s *Spec, state []byte, at event.Micros, hash uint64) ([]byte, Added) {
	if len(state) == 0 {
		f := alignedFrame[K](s, at)
		state = newValues(state, &f)
	}
	var c sets
	c.read(state)
	return putValue(s, state, &c, placeAligned[K](s, &c.frame, at), hash)
}

// add moves the latest time on without a value. A moment that is not later moves nothing.
func (distinct[K]) add(s *Spec, state []byte, at event.Micros, _ event.Decimal) ([]byte, Added) {
	if len(state) == 0 {
		return state, Added{Known: true}
	}
	var c sets
	c.read(state)
	if at <= c.latest {
		f, added := c.frame, Added{Known: true, Count: c.current(state)}
		to := placeAligned[K](s, &f, at)
		added.Late, added.Ended = to == nowhere, to == inBefore
		return state, added
	}
	return moveValues(state, &c, placeAligned[K](s, &c.frame, at))
}

func (distinct[K]) bounds(s *Spec, state []byte, now event.Micros) (from, to event.Micros) {
	if from, to, ok := holdsNow(state, now); ok {
		return from, to
	}
	var k K
	return k.window(s, now)
}

func (distinct[K]) spent(s *Spec, state []byte) event.Micros {
	f, _ := readFrame(state)
	return f.end + min(f.end-f.start, s.Lateness)
}

// placeAligned finds an event's window, and moves the frame on.
func placeAligned[K valueKind](s *Spec, f *frame, at event.Micros) place {
	var k K
	switch {
	case at >= f.end:
		old := *f
		*f = alignedFrame[K](s, at)
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
	start, _ := k.window(s, f.start-1)
	end := f.start // a state from elsewhere may begin where no unit does
	if at < start || f.latest >= end+(end-start) {
		return nowhere
	}
	f.hasBefore, f.before, f.closed = true, start, end
	return inBefore
}

func alignedFrame[K valueKind](s *Spec, at event.Micros) frame {
	var k K
	f := frame{latest: at}
	f.start, f.end = k.window(s, at)
	return f
}
