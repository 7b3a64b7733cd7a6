package windows

import "github.com/tallygate/tallygate/pipeline/event"

// What most events do to a counter: they are not older than its latest one, and fall into its
// current window. The functions here do that in one pass over the state, mostly in place, and
// report false, with nothing changed, when there is more to do: Add then does all of it. Exact
// counters have none: walking over their times is what they cost.

// AddSpent is Add, and says too what Spent says of the state then.
func (s *Spec) AddSpent(state []byte, at event.Micros, n event.Decimal) (_ []byte, added Added, spent event.Micros) {
	if n > 0 && len(state) > 0 && at >= -MaxTime && at <= MaxTime {
		var ok bool
		switch state[0] {
		case formatTumbling:
			state, added.Count, spent, ok = s.quickTumbling(state, at, n)
		case formatCalendar:
			state, added.Count, spent, ok = s.quickCalendar(state, at, n)
		case formatPanes:
			state, added.Count, spent, ok = s.quickPanes(state, at, n)
		}
		if ok {
			return state, added, spent
		}
	}
	state, added = s.Add(state, at, n)
	return state, added, s.Spent(state)
}

// quickTumbling adds to the current window; the one before it stays as it is.
func (s *Spec) quickTumbling(state []byte, at event.Micros, n event.Decimal) (_ []byte, count event.Decimal, spent event.Micros, ok bool) {
	latest := getLatest(state)
	start, end := s.tumblingWindow(latest)
	cur, size := readAmount(state[headBytes:])
	rest := headBytes + size
	count = cur + n
	if at < start || at >= end || count < 0 || rest < len(state) && at >= start+s.Lateness {
		return state, 0, 0, false
	}
	if at > latest {
		putLatest(state, at)
	}
	if rest == len(state) {
		state = appendAmount(state[:headBytes], count)
	} else {
		var buf [maxVarint]byte
		state = splice(state, headBytes, rest, appendAmount(buf[:0], count))
	}
	return state, count, end + min(s.Per, s.Lateness), true
}

// quickCalendar is the same for a civil window, whose edges the state has.
func (s *Spec) quickCalendar(state []byte, at event.Micros, n event.Decimal) (_ []byte, count event.Decimal, spent event.Micros, ok bool) {
	start := getSeconds(state)
	seconds, i := uvarint(state[calendarHeadBytes:])
	i += calendarHeadBytes
	past, size := uvarint(state[i:])
	rest := i + size
	cur, size := readAmount(state[rest:])
	rest += size
	length := event.Micros(seconds) * event.Second
	count = cur + n
	if at < start || at >= start+length || count < 0 || rest < len(state) && at >= start+s.Lateness {
		return state, 0, 0, false
	}
	past = max(past, uint64(at-start))
	if rest == len(state) {
		state = appendAmount(appendUvarint(state[:i], past), count)
	} else {
		var buf [2 * maxVarint]byte
		state = splice(state, i, rest, appendAmount(appendUvarint(buf[:0], past), count))
	}
	return state, count, start + length + min(length, s.Lateness), true
}

// quickPanes adds to the newest pane, or opens a newer one; some, but not all, may end by it.
func (s *Spec) quickPanes(state []byte, at event.Micros, n event.Decimal) (_ []byte, count event.Decimal, spent event.Micros, ok bool) {
	latest := getLatest(state)
	if at < latest || len(state) == headBytes {
		return state, 0, 0, false
	}
	total, cut := readAmount(state[headBytes:])
	cut += headBytes
	back, size := uvarint(state[cut:])
	cut += size
	span, size := uvarint(state[cut:])
	cut += size
	pane := s.paneOf(latest)
	newest := pane - int64(back)
	oldest := newest - int64(span)
	if at >= event.Micros(pane+1)*s.Resolution {
		pane = s.paneOf(at)
	}
	if total == event.MaxDecimal || total+n < 0 {
		return state, 0, 0, false
	}
	for s.paneEnds(oldest) <= at {
		amount, size := readAmount(state[cut:])
		if cut += size; cut == len(state) {
			return state, 0, 0, false
		}
		gap, size := uvarint(state[cut:])
		cut += size
		oldest += int64(gap)
		total -= amount
	}
	count = total + n
	putLatest(state, at)
	var buf [3 * maxVarint]byte
	front := append(appendAmount(buf[:0], count), 0)
	front = appendUvarint(front, uint64(pane-oldest))
	state = splice(state, headBytes, cut, front)
	if pane > newest {
		state = appendUvarint(state, uint64(pane-newest))
	} else {
		last := lastVarint(state)
		amount, _ := readAmount(state[last:])
		state, n = state[:last], amount+n
	}
	return appendAmount(state, n), count, s.paneEnds(pane), true
}
