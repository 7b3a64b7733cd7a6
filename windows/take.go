package windows

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
)

// Remembered is how many events of a key may be taken back at most. An exact sliding window with
// Refunds keeps so many times more than one without: whatever is taken back, it knows then
// whether more than ExactLimit units are left.
const Remembered = 1024

// Take takes n back from what an event at the time at counted, as far as that is held. It
// moves no time: Add with an amount of 0 does. Unlike Add it may allocate.
func (s *Spec) Take(state []byte, at event.Micros, n event.Decimal) []byte {
	at = clamp(at)
	switch {
	case !s.Refunds || len(state) == 0 || n <= 0:
		return state
	case s.Kind != Sliding:
		return s.takePair(state, at, n)
	}
	parts := s.exactParts
	if !s.Exact {
		parts, at = s.paneParts, event.Micros(s.paneOf(at))*s.Resolution
	}
	all := parts(state)
	i := slices.IndexFunc(all, func(p part) bool { return p.at == at })
	if i < 0 && s.Exact {
		i = s.mergedInto(all, at)
	}
	if i < 0 {
		return state
	}
	all[i].n -= min(all[i].n, n)
	latest := getLatest(state)
	state = state[:0]
	for _, p := range all {
		if p.n > 0 {
			state, _ = s.Add(state, p.at, p.n)
		}
	}
	state, _ = s.Add(state, latest, 0)
	return state
}

func (s *Spec) takePair(state []byte, at event.Micros, n event.Decimal) []byte {
	p := s.readPair(state)
	switch {
	case at >= p.end:
		return state
	case at >= p.start:
		p.cur -= min(p.cur, n)
	case p.prev > 0:
		if start, _ := s.window(p.start - 1); at < start {
			return state
		}
		p.prev -= min(p.prev, n)
	}
	return s.writePair(state, p)
}

// part is what a sliding window holds of one time or pane.
type part struct {
	at event.Micros
	n  event.Decimal
}

// exactParts are the times that are kept, oldest first.
func (s *Spec) exactParts(state []byte) (parts []part) {
	at := getLatest(state)
	for pos := headBytes; pos < len(state); {
		gap, units, size := readEntry(state[pos:])
		at -= gap
		parts = append(parts, part{at, unitsToDecimal(units)})
		pos += size
	}
	slices.Reverse(parts)
	return parts
}

// paneParts are the starts of the panes, oldest first.
func (s *Spec) paneParts(state []byte) (parts []part) {
	p := s.readPanes(state)
	pane := p.oldest
	for pos := p.body; pos < len(state); {
		n, size := readAmount(state[pos:])
		pos += size
		parts = append(parts, part{event.Micros(pane) * s.Resolution, n})
		if pos < len(state) {
			gap, size := uvarint(state[pos:])
			pos += size
			pane += int64(gap)
		}
	}
	return parts
}

// Empty takes back all that is in the current window, or in the one before it.
func (s *Spec) Empty(state []byte, before bool) []byte {
	switch {
	case len(state) == 0:
		return state
	case s.Kind == Bucket || s.Kind == Sliding:
		state[0] = s.format() // without a tail
		return state[:headBytes]
	case s.Distinct:
		return s.emptyDistinct(state, before)
	case s.Kind == Session:
		c := readSessions(state)
		if before {
			c.prev = 0
		} else {
			c.cur = 0
		}
		return writeSessions(state, &c)
	}
	p := s.readPair(state)
	if before {
		p.prev = 0
	} else {
		p.cur = 0
	}
	return s.writePair(state, p)
}

func (s *Spec) emptyDistinct(state []byte, before bool) []byte {
	f, body := readFrame(state)
	size := readSize(state[body:])
	switch {
	case f.hasBefore && before:
		return splice(state, body, body+size, emptySet[:])
	case f.hasBefore:
		return append(state[:body+size], 0)
	case before:
		return state
	}
	return append(state[:body], 0)
}

// Holds tells whether what an event at the time at counted is still in the window that it went
// into, and that is held.
func (s *Spec) Holds(state []byte, at event.Micros) bool {
	at = clamp(at)
	switch {
	case len(state) == 0:
		return false
	case s.Kind == Sliding && s.Exact:
		return at > getLatest(state)-s.Per
	case s.Kind == Sliding:
		return s.paneEnds(s.paneOf(at)) > getLatest(state)
	case s.Distinct || s.Kind == Session || s.Kind == Bucket:
		return false // nothing is taken back there
	}
	p := s.readPair(state)
	return at >= p.start || s.holdsBefore(p, at)
}
