package windows

import "github.com/tallygate/tallygate/event"

// frame locates the windows of a counter: the current one, and the one before it as long as it may matter. The head
// and the frame of a state that keeps them are, behind the format and the latest time:
//
//	uvarint  the latest time less the current window's start
//	uvarint  the current window's length
//	uvarint  0: there is no window before; else 1 + what lies between its end and the current start
//	uvarint  the length of the window before, if there is one
type frame struct {
	latest         event.Micros
	start, end     event.Micros // of the current window
	hasBefore      bool
	before, closed event.Micros // of the window before it: [before, closed)
}

// place is an event's window.
type place uint8

const (
	inCurrent  place = iota
	opens            // a new current window; what was current is the one before
	opensAlone       // a new current window; what was current is not held
	inBefore         // the window before, which may be empty so far
	ownBefore        // a session of its own, which takes the place of the window before
	joins            // the sessions before and now become one
	nowhere          // late
)

const frameVarint = 4 // how many numbers a frame has at most

// holdsNow tells whether the current window has not ended at now, and where it lies.
func holdsNow(state []byte, now event.Micros) (from, to event.Micros, ok bool) {
	if len(state) == 0 {
		return 0, 0, false
	}
	f, _ := readFrame(state)
	return f.start, f.end, now < f.end
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

// checkFrame reads a head and a frame that may be anything. Whether its windows are ones of the kind is
// for the kind to say.
func checkFrame(r *reader) (f frame) {
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
	if r.err == nil && past >= length {
		r.fail(errTime)
	}
	return f
}
