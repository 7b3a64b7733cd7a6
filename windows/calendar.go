package windows

import (
	"math"

	"github.com/tallygate/tallygate/pipeline/event"
)

// A calendar counter's state is the format, the current window's start in Unix seconds (five
// bytes), its length in seconds, the latest time less the start in µs, the current window's
// amount, and the amount of the window before it unless that is zero. The window is kept so
// that an event in it needs no calendar.

const (
	calendarHeadBytes = 6
	maxUnitSeconds    = 400 * 24 * 3600 // longer than any civil year
)

func readCalendar(state []byte) pair {
	rest := state[calendarHeadBytes:]
	length, n := uvarint(rest)
	rest = rest[n:]
	past, n := uvarint(rest)
	rest = rest[n:]
	p := pair{start: getSeconds(state)}
	p.end = p.start + event.Micros(length)*event.Second
	p.latest = p.start + event.Micros(past)
	p.cur, n = readAmount(rest)
	if rest = rest[n:]; len(rest) > 0 {
		p.prev, _ = readAmount(rest)
	}
	return p
}

func writeCalendar(state []byte, p pair) []byte {
	sec := uint64(p.start / event.Second)
	state = append(state[:0], formatCalendar,
		byte(sec), byte(sec>>8), byte(sec>>16), byte(sec>>24), byte(sec>>32))
	state = appendUvarint(state, uint64((p.end-p.start)/event.Second))
	state = appendUvarint(state, uint64(p.latest-p.start))
	state = appendAmount(state, p.cur)
	if p.prev > 0 {
		state = appendAmount(state, p.prev)
	}
	return state
}

// getSeconds reads the five bytes of a window's start; the uppermost one has the sign.
func getSeconds(state []byte) event.Micros {
	b := state[1:calendarHeadBytes]
	sec := int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16 | int64(b[3])<<24 | int64(int8(b[4]))<<32
	return event.Micros(sec) * event.Second
}

func (s *Spec) checkCalendar(state []byte) error {
	if len(state) < calendarHeadBytes {
		return errTruncated
	}
	start := getSeconds(state)
	r := reader{rest: state[calendarHeadBytes:]}
	length := event.Micros(r.number(1, maxUnitSeconds)) * event.Second
	past := event.Micros(r.number(0, math.MaxInt64))
	r.amount(0)
	prev := false
	if r.more() {
		r.amount(1)
		prev = true
	}
	switch {
	case r.err != nil:
	case start < -MaxTime-length || start > MaxTime, past >= length, start+past != clamp(start+past):
		return errTime
	case prev && past >= s.Lateness:
		return errTime
	}
	return r.end()
}
