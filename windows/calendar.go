package windows

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tallygate/tallygate/event"
)

// A calendar counter's state is the format, the current window's start in Unix seconds (five
// bytes), its length in seconds, the latest time less the start in µs, the current window's
// amount, and the amount of the window before it unless that is zero. The window is kept so
// that an event in it needs no calendar.
type calendar struct{ pairs[calendar] }

const (
	formatCalendar    = 0x12
	calendarHeadBytes = 6
	maxUnitSeconds    = 400 * 24 * 3600 // longer than any civil year
)

func (calendar) validate(s *Spec) error {
	if s.Zone == nil {
		s.Zone = time.UTC
	}
	errs := []error{checkSpan("lateness", s.Lateness, 0)}
	if s.Unit < Hour || s.Unit > Year {
		errs = append(errs, fmt.Errorf("windows: unknown unit %d", s.Unit))
	}
	if s.WeekStarts < time.Sunday || s.WeekStarts > time.Saturday {
		errs = append(errs, fmt.Errorf("windows: weeks cannot start on day %d, days are 0 (Sunday) to 6", s.WeekStarts))
	}
	if s.FirstDay < 0 || s.FirstDay > 31 || s.FirstMonth < 0 || s.FirstMonth > time.December {
		errs = append(errs, fmt.Errorf("windows: no month begins on day %d, and no year in month %d", s.FirstDay, s.FirstMonth))
	}
	if s.Offset < 0 || s.Offset >= event.Day || s.Offset%event.Second != 0 || s.Offset > 0 && s.Unit == Hour {
		errs = append(errs, fmt.Errorf("windows: no day begins %d µs after midnight: it is whole seconds, less than a day, and not of hours", s.Offset))
	}
	return errors.Join(errs...)
}

func (calendar) maxBytes(*Spec) int { return calendarHeadBytes + 4*maxVarint }

func (calendar) formats() (oldest, newest byte) { return formatCalendar, formatCalendar }

func (calendar) check(s *Spec, state []byte) error {
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
	case past >= length, start+past != clamp(start+past):
		return errTime
	case prev && past >= s.Lateness:
		return errTime
	}
	return r.end()
}

// addSpent adds to the current window; the one before it stays as it is.
func (calendar) addSpent(s *Spec, state []byte, at event.Micros, n event.Decimal) (_ []byte, added Added, spent event.Micros, ok bool) {
	start := getSeconds(state)
	seconds, i := uvarint(state[calendarHeadBytes:])
	i += calendarHeadBytes
	past, size := uvarint(state[i:])
	rest := i + size
	cur, size := readAmount(state[rest:])
	rest += size
	length := event.Micros(seconds) * event.Second
	count := cur + n
	if at < start || at >= start+length || count < 0 || rest < len(state) && at >= start+s.Lateness {
		return state, Added{}, 0, false
	}
	past = max(past, uint64(at-start))
	if rest == len(state) {
		state = appendAmount(appendUvarint(state[:i], past), count)
	} else {
		var buf [2 * maxVarint]byte
		state = splice(state, i, rest, appendAmount(appendUvarint(buf[:0], past), count))
	}
	return state, Added{Count: count}, start + length + min(length, s.Lateness), true
}

func (calendar) latest(state []byte) event.Micros {
	_, n := uvarint(state[calendarHeadBytes:])
	past, _ := uvarint(state[calendarHeadBytes+n:])
	return getSeconds(state) + event.Micros(past)
}

func (calendar) read(_ *Spec, state []byte) pair {
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

func (calendar) write(state []byte, p pair) []byte {
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

// fits: other zone data may have given other edges.
func (calendar) fits(*Spec, event.Micros, event.Micros, event.Micros) bool { return true }

func (calendar) window(s *Spec, at event.Micros) (start, end event.Micros) { return civilWindow(s, at) }
