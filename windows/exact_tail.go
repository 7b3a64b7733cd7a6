package windows

import (
	"slices"

	"github.com/tallygate/tallygate/event"
)

// The tail of an exact counter is what is older than the times that decide. It says by how much a
// count is greater. Its times stay, too, while they are at most tailTimes. When there are more, those
// of one part of the window become one, with the newest one's time. So a count is never too little,
// and too much by at most what came within a tailParts-th of the window before it. That bounds a
// state, whatever a key does.
const (
	tailTimes = 24
	tailParts = 16
)

// mergeTail makes one of all times behind pos that are in one part; age is that of the entry before them.
func mergeTail(s *Spec, state []byte, pos int, age event.Micros) []byte {
	var buf [(tailParts + 1) * 2 * maxVarint]byte
	merged, latest := buf[:0], getLatest(state)
	from := age
	var first event.Micros // the age of the part's newest time
	var sum uint64
	for at := pos; at < len(state); {
		gap, units, size := readEntry(state[at:])
		age += gap
		switch {
		case sum > 0 && tailPart(s, latest-age) == tailPart(s, latest-first):
			sum = min(sum+units, maxUnits)
		default:
			if sum > 0 {
				merged, from = appendEntry(merged, first-from, sum), first
			}
			first, sum = age, units
		}
		at += size
	}
	return append(state[:pos], appendEntry(merged, first-from, sum)...)
}

// mergedInto returns the part of a tail that a time was merged into, -1 when it was not. The parts are oldest first.
func mergedInto(s *Spec, parts []part, at event.Micros) int {
	i := slices.IndexFunc(parts, func(p part) bool { return p.at > at })
	if i < 0 || tailPart(s, parts[i].at) != tailPart(s, at) {
		return -1
	}
	var newer event.Decimal
	for _, p := range parts[i+1:] {
		newer = newer.Plus(p.n)
	}
	if newer <= ExactLimit*event.One {
		return -1 // it is a time of its own
	}
	return i
}

// tailPart returns a moment's part of time: a window covers, or touches, tailParts+1 of them at most.
func tailPart(s *Spec, at event.Micros) event.Micros {
	length := (s.Per + tailParts - 1) / tailParts
	part := at / length
	if at%length < 0 {
		part--
	}
	return part
}

// spareTimes counts the times that are kept beyond those for ExactLimit+1 units.
func spareTimes(s *Spec) int {
	if s.Refunds {
		return Remembered
	}
	return 0
}

func appendEntry(b []byte, gap event.Micros, units uint64) []byte {
	if units == 1 {
		return appendUvarint(b, uint64(gap)<<1)
	}
	b = appendUvarint(b, uint64(gap)<<1|1)
	return appendUvarint(b, units)
}

func readEntry(b []byte) (gap event.Micros, units uint64, size int) {
	v, size := uvarint(b)
	units = 1
	if v&1 == 1 {
		var n int
		units, n = uvarint(b[size:])
		size += n
	}
	return event.Micros(v >> 1), units, size
}
