package windows_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// A form is a state that is put together by hand.
type form []byte

// headed begins a form with its format and the latest time.
func headed(format byte, latest event.Micros) form {
	return binary.LittleEndian.AppendUint64([]byte{format}, uint64(latest))
}

// dated begins a calendar's form with its format and the window's start.
func dated(sec int64) form {
	return append(form{0x12}, binary.LittleEndian.AppendUint64(nil, uint64(sec))[:5]...)
}

// and appends numbers as varints.
func (f form) and(numbers ...uint64) form {
	f = slices.Clone(f)
	for _, n := range numbers {
		f = binary.AppendUvarint(f, n)
	}
	return f
}

// values appends the hashes of n values, each with a time behind it unless when is NoTime.
func (f form) values(n int, when event.Micros) form {
	f = slices.Clone(f)
	for i := range n {
		f = binary.LittleEndian.AppendUint64(f, uint64(i))
		if when != event.NoTime {
			f = binary.LittleEndian.AppendUint64(f, uint64(when))
		}
	}
	return f
}

// edge is a state that is just one, and what is just none.
type edge struct {
	name      string
	spec      windows.Spec
	good, bad form
}

const (
	one  = 1 << 1 // an amount of one
	two  = 2 << 1
	sec  = uint64(event.Second)
	minu = uint64(event.Minute)
)

// Check knows to a microsecond, and to a number, what Add makes: it is what stands between a state
// that something broke and the counting.
func TestCheckKnowsEachEdge(t *testing.T) {
	noon := at("2026-11-21T12:00:00Z")
	for _, e := range slices.Concat(commonEdges(noon), alignedEdges(noon), slidingEdges(noon), hoppingEdges(noon), sessionEdges(noon), firstEdges(noon), valueEdges(noon)) {
		if err := e.spec.Validate(); err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		if err := e.spec.Check(e.good); err != nil {
			t.Errorf("%s: % .40x is refused: %v", e.name, []byte(e.good), err)
		}
		if e.spec.Check(e.bad) == nil {
			t.Errorf("%s: % .40x is let pass", e.name, []byte(e.bad))
		}
	}
}

func commonEdges(noon event.Micros) []edge {
	const most = uint64(event.MaxDecimal / event.One)
	s, b := perMinute(), bucketOf(event.One, event.Second)
	return []edge{
		{name: "the last time there is", spec: b, good: headed(0x16, windows.MaxTime), bad: headed(0x16, windows.MaxTime+1)},
		{name: "the first time there is", spec: b, good: headed(0x16, -windows.MaxTime), bad: headed(0x16, -windows.MaxTime-1)},
		{name: "the greatest whole amount", spec: s, good: headed(0x11, noon).and(most << 1), bad: headed(0x11, noon).and((most + 1) << 1)},
		{name: "a whole amount has one form", spec: s, good: headed(0x11, noon).and(1_000_001<<1 | 1), bad: headed(0x11, noon).and(1_000_000<<1 | 1)},
		{name: "a debt's upper half has one form", spec: b, good: headed(0x16, noon).and(0, 1), bad: headed(0x16, noon).and(1, 0)},
	}
}

func alignedEdges(noon event.Micros) []edge {
	s := windows.Spec{Kind: windows.Tumbling, Per: event.Minute, Lateness: 10 * event.Second}
	day := windows.Spec{Kind: windows.Calendar, Unit: windows.Day, Lateness: event.Hour}
	midnight := int64(noon/event.Second) - 12*3600
	const dayLong, longest, hour = 24 * 3600, 400 * 24 * 3600, 3600 * uint64(event.Second)
	last := int64(windows.MaxTime / event.Second)
	past := uint64(windows.MaxTime % event.Second)
	return []edge{
		{name: "the minute before is empty", spec: s, good: headed(0x11, noon).and(one, 1<<1|1), bad: headed(0x11, noon).and(one, 0)},
		{name: "the minute before is held", spec: s, good: headed(0x11, noon+10*event.Second-1).and(one, two), bad: headed(0x11, noon+10*event.Second).and(one, two)},
		{name: "a day has a second", spec: day, good: dated(midnight).and(1, 0, one), bad: dated(midnight).and(0, 0, one)},
		{name: "no unit is longer", spec: day, good: dated(midnight).and(longest, 0, one), bad: dated(midnight).and(longest+1, 0, one)},
		{name: "the latest time is in the day", spec: day, good: dated(midnight).and(dayLong, dayLong*sec-1, one), bad: dated(midnight).and(dayLong, dayLong*sec, one)},
		{name: "the day before is empty", spec: day, good: dated(midnight).and(dayLong, 0, one, 1<<1|1), bad: dated(midnight).and(dayLong, 0, one, 0)},
		{name: "the day before is held", spec: day, good: dated(midnight).and(dayLong, hour-1, one, one), bad: dated(midnight).and(dayLong, hour, one, one)},
		{name: "the last day's latest time", spec: day, good: dated(last).and(dayLong, past, one), bad: dated(last).and(dayLong, past+1, one)},
		{name: "the first day's latest time", spec: day, good: dated(-last-1).and(dayLong, sec-past, one), bad: dated(-last-1).and(dayLong, sec-past-1, one)},
		{name: "five bytes of a start", spec: day, good: dated(midnight).and(dayLong, 0, one), bad: dated(midnight)[:5]},
	}
}

func slidingEdges(noon event.Micros) []edge {
	s, panes := exactly(event.Minute), inPanes(event.Minute, 10*event.Second)
	times := func(format byte, n int) form { // one each microsecond, the newest at the latest time
		return headed(format, noon).and(0).and(slices.Repeat([]uint64{1 << 1}, n-1)...)
	}
	const exactTimes, tail, most = windows.ExactLimit + 1, 24, uint64(event.MaxDecimal / event.One)
	return []edge{
		{name: "two at one time have one form", spec: s, good: headed(0x13, noon).and(1, 2), bad: headed(0x13, noon).and(0, 0)},
		{name: "one at a time has one form", spec: s, good: headed(0x13, noon).and(0), bad: headed(0x13, noon).and(1, 1)},
		{name: "so many at one time", spec: s, good: headed(0x13, noon).and(1, most), bad: headed(0x13, noon).and(1, most+1)},
		{name: "the second time is in the window", spec: s, good: headed(0x13, noon).and(minu, minu-2), bad: headed(0x13, noon).and(minu, minu)},
		{name: "a tail has a format of its own", spec: s, good: times(0x13, exactTimes), bad: times(0x13, exactTimes+1)},
		{name: "that format has a tail", spec: s, good: times(0x23, exactTimes+1), bad: times(0x23, exactTimes)},
		{name: "so long is a tail", spec: s, good: times(0x23, exactTimes+tail), bad: times(0x23, exactTimes+tail+1)},
		{name: "so many times more may be taken back", spec: refundable(s), good: times(0x13, exactTimes+windows.Remembered), bad: times(0x13, exactTimes+windows.Remembered+1)},
		{name: "a pane counts", spec: panes, good: headed(0x14, noon).and(one, 6, 0, one), bad: headed(0x14, noon).and(one, 7, 0, one)},
		{name: "so does the oldest", spec: panes, good: headed(0x14, noon).and(two, 0, 6, one, 6, one), bad: headed(0x14, noon).and(two, 0, 7, one, 7, one)},
		{name: "a pane has an amount", spec: panes, good: headed(0x14, noon).and(one, 0, 0, one), bad: headed(0x14, noon).and(0, 0, 0, 0)},
		{name: "each pane has one", spec: panes, good: headed(0x14, noon).and(two, 0, 1, one, 1, one), bad: headed(0x14, noon).and(one, 0, 1, one, 1, 0)},
		{name: "a pane comes once", spec: panes, good: headed(0x14, noon).and(two, 0, 1, one, 1, one), bad: headed(0x14, noon).and(two, 0, 0, one, 0, one)},
		{name: "the last pane is the newest", spec: panes, good: headed(0x14, noon).and(two, 0, 2, one, 2, one), bad: headed(0x14, noon).and(two, 0, 2, one, 1, one)},
		{name: "the total is the panes'", spec: panes, good: headed(0x14, noon).and(two, 0, 1, one, 1, one), bad: headed(0x14, noon).and(two+2, 0, 1, one, 1, one)},
	}
}

func hoppingEdges(noon event.Micros) []edge {
	s := hoppingBy(event.Minute, 10*event.Second) // six panes, and six of ended windows
	only := func(numbers ...uint64) form { return headed(0x19, noon).and(numbers...) }
	both := only(one, 0, 6, 2, 6, one, 6, one)
	return []edge{
		{name: "the oldest pane is of a window that may be held", spec: s, good: only(0, 11, 0, 1, one), bad: only(0, 12, 0, 1, one)},
		{name: "the oldest of some is", spec: s, good: only(one, 5, 6, 2, 6, one, 6, one), bad: only(one, 5, 7, 2, 7, one, 7, one)},
		{name: "no pane is ahead", spec: s, good: only(one, 0, 0, 0, one), bad: only(one, 1<<63, 0, 0, one)},
		{name: "a pane has an amount", spec: s, good: only(one, 0, 0, 0, one), bad: only(0, 0, 0, 0, 0)},
		{name: "each pane has one", spec: s, good: only(two, 0, 1, 0, one, 1, one), bad: only(one, 0, 1, 0, one, 1, 0)},
		{name: "a pane comes once", spec: s, good: only(two, 0, 1, 0, one, 1, one), bad: only(two, 0, 0, 0, one, 0, one)},
		{name: "the last pane is the newest", spec: s, good: only(two, 0, 1, 0, one, 1, one), bad: only(two, 0, 2, 0, one, 1, one)},
		{name: "the count is of the panes that count", spec: s, good: both, bad: only(two, 0, 6, 2, 6, one, 6, one)},
		{name: "the others end where it says", spec: s, good: both, bad: only(one, 0, 6, 1, 6, one, 6, one)},
		{name: "and the first one follows", spec: s, good: both, bad: only(one, 0, 6, 2, 5, one, 6, one)},
		{name: "that may be so many panes behind", spec: s, good: only(one, 0, 11, 2, 11, one, 11, one), bad: only(one, 0, 12, 2, 12, one, 12, one)},
		{name: "there are others", spec: s, good: only(one, 5, 0, 0, one), bad: only(one, 6, 0, 0, one)},
	}
}

func sessionEdges(noon event.Micros) []edge {
	s := perSession(event.Minute, event.Hour) // the session before is held for a minute, and remembered for one more
	alone, after := headed(0x15, noon), headed(0x15, noon)
	return []edge{
		{name: "a session ends a gap after its last event", spec: s, good: alone.and(5, minu+5, 0, one), bad: alone.and(5, minu+4, 0, one)},
		{name: "and not later", spec: s, good: alone.and(0, minu, 0, one), bad: alone.and(0, minu+1, 0, one)},
		{name: "so does the one before", spec: s, good: after.and(0, minu, 1, minu, one, one), bad: after.and(0, minu, 1, minu-1, one, one)},
		{name: "which is remembered", spec: s, good: after.and(0, minu, 2*minu, minu, one, one), bad: after.and(0, minu, 2*minu+1, minu, one, one)},
		{name: "and has an amount", spec: s, good: after.and(0, minu, 1, minu, one, 0), bad: after.and(0, minu, 1, minu, one)},
	}
}

func firstEdges(noon event.Micros) []edge {
	s := fromFirst(event.Minute, event.Hour)
	alone := headed(0x1a, noon)
	return []edge{
		{name: "a window is per long", spec: s, good: alone.and(5, minu, 0, one), bad: alone.and(5, minu+1, 0, one)},
		{name: "and not shorter", spec: s, good: alone.and(0, minu, 0, one), bad: alone.and(0, minu-1, 0, one)},
		{name: "the one before is not longer", spec: s, good: alone.and(0, minu, 1, minu, one, one), bad: alone.and(0, minu, 1, minu+1, one, one)},
		{name: "one of its own may be shorter", spec: s, good: alone.and(0, minu, minu, 1, one, one), bad: alone.and(0, minu, minu, 0, one, one)},
		{name: "and has an amount", spec: s, good: alone.and(0, minu, 1, minu, one, 0), bad: alone.and(0, minu, 1, minu, one)},
	}
}

func valueEdges(noon event.Micros) []edge {
	s := windows.Spec{Kind: windows.Tumbling, Per: event.Minute, Lateness: 10 * event.Second, Distinct: true}
	day := windows.Spec{Kind: windows.Calendar, Unit: windows.Day, Zone: time.UTC, Lateness: event.Hour, Distinct: true}
	session := distinctly(perSession(event.Minute, event.Hour))
	estimated := s
	estimated.Estimate = true
	recent := windows.Spec{Kind: windows.Sliding, Per: event.Minute, Exact: true, Distinct: true}
	set := func(past uint64, n int, hashes int) form {
		return headed(0x17, noon+event.Micros(past)).and(past, minu, 0, uint64(n)).values(hashes, event.NoTime)
	}
	before := func(past, apart uint64) form {
		return headed(0x17, noon+event.Micros(past)).and(past, minu, apart, minu, 0, 0)
	}
	kept := func(n int, when event.Micros) form { return headed(0x18, noon).values(n, when) }
	newest := windows.ExactDistinct + 1
	dayLong := 24 * 3600 * sec
	return []edge{
		{name: "a minute is one", spec: s, good: set(0, 1, 1), bad: headed(0x17, noon).and(0, minu-1, 0, 1).values(1, event.NoTime)},
		{name: "it begins where one does", spec: s, good: set(1, 1, 1), bad: headed(0x17, noon).and(1, minu, 0, 1).values(1, event.NoTime)},
		{name: "the minute before ends where this one begins", spec: s, good: before(0, 1), bad: before(0, 2)},
		{name: "and is held", spec: s, good: before(10*sec-1, 1), bad: before(10*sec, 1)},
		{name: "the latest time is in the day", spec: day, good: headed(0x17, noon).and(dayLong-1, dayLong, 0, 0), bad: headed(0x17, noon).and(dayLong, dayLong, 0, 0)},
		{name: "a session before it is remembered", spec: session, good: headed(0x17, noon).and(0, minu, 2*minu, minu, 0, 0), bad: headed(0x17, noon).and(0, minu, 2*minu+1, minu, 0, 0)},
		{name: "so many values are kept", spec: s, good: set(0, newest, newest), bad: set(0, newest+1, newest+1)},
		{name: "so many are no estimate", spec: estimated, good: set(0, newest-1, newest-1), bad: set(0, newest, newest)},
		{name: "all of them are there", spec: s, good: set(0, 3, 3), bad: set(0, 3, 3)[:len(set(0, 3, 3))-1]},
		{name: "a sketch is an estimate", spec: s, good: set(0, 0, 0), bad: set(0, 1<<12, newest+2)},
		{name: "a value's time is not ahead", spec: recent, good: kept(1, noon), bad: kept(1, noon+1)},
		{name: "it is in the window", spec: recent, good: kept(1, noon-event.Minute+1), bad: kept(1, noon-event.Minute)},
		{name: "newer ones come first", spec: recent, good: slices.Concat(kept(1, noon), kept(1, noon-1)[9:]), bad: slices.Concat(kept(1, noon-1), kept(1, noon)[9:])},
		{name: "so many slide", spec: recent, good: kept(newest, noon), bad: kept(newest+1, noon)},
		{name: "each has a time", spec: recent, good: kept(2, noon), bad: kept(2, noon)[:9+16+8]},
	}
}
