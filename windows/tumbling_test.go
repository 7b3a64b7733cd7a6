package windows_test

import (
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

func perMinute() windows.Spec {
	return windows.Spec{Kind: windows.Tumbling, Per: event.Minute, Lateness: event.Hour}
}

// The classic weakness, and what the rule language promises: 198 within two seconds.
func TestTumblingOf100AMinuteLets99AtTheEndAnd99AtTheBeginningPass(t *testing.T) {
	c := newCounter(t, perMinute())
	c.counts(59*event.Second, 99, 99)
	c.counts(61*event.Second, 99, 99)
}

func TestTumblingCoversItsStartButNotItsEnd(t *testing.T) {
	c := newCounter(t, perMinute())
	c.counts(0, 1, 1)
	c.counts(event.Minute-tick, 1, 2)
	c.counts(event.Minute, 1, 1)
}

func TestTumblingIsAlignedToTheEpochPlusOffset(t *testing.T) {
	spec := windows.Spec{Kind: windows.Tumbling, Per: event.Day, Offset: -8 * event.Hour}
	c := newCounter(t, spec)
	c.counts(at("2026-11-21T23:59:59.999999+08:00"), 1, 1)
	c.counts(at("2026-11-22T00:00:00+08:00"), 1, 1)
	from, to := spec.Bounds(c.state, at("2026-11-22T13:00:00+08:00"))
	if from != at("2026-11-22T00:00:00+08:00") || to != at("2026-11-23T00:00:00+08:00") {
		t.Errorf("bounds %v to %v", from.Time(), to.Time())
	}
}

func TestTumblingOf7DaysStartsOnThursdays(t *testing.T) {
	spec := windows.Spec{Kind: windows.Tumbling, Per: 7 * event.Day}
	from, to := spec.Bounds(nil, at("2026-11-21T10:00:00Z"))
	if from != at("2026-11-19T00:00:00Z") || to != at("2026-11-26T00:00:00Z") {
		t.Errorf("bounds %v to %v", from.Time(), to.Time())
	}
}

func TestTumblingBefore1970(t *testing.T) {
	c := newCounter(t, perMinute())
	c.counts(at("1969-12-31T23:59:00Z"), 1, 1)
	c.counts(-tick, 1, 2)
	c.counts(0, 1, 1)
	c.countsEnded(-tick, 1, 3)
}

func TestTumblingEndsAtTheEdge(t *testing.T) {
	c := newCounter(t, perMinute())
	c.counts(20*event.Second, 3, 3)
	c.isBelow(3, event.Minute)
	c.isBelow(4, 20*event.Second)
	if got := c.spec.CountAt(c.state, event.Minute-tick); got != 3*event.One {
		t.Errorf("just before the edge it counts %d", got)
	}
	if got := c.spec.CountAt(c.state, event.Minute); got != 0 {
		t.Errorf("at the edge it counts %d", got)
	}
}

func TestTumblingHoldsTheWindowBeforeUntilItsLengthPastItsEnd(t *testing.T) {
	c := newCounter(t, perMinute())
	c.counts(30*event.Second, 1, 1)
	c.counts(119*event.Second, 1, 1)
	c.countsEnded(10*event.Second, 1, 2)
	c.tooLate(-tick)
	c.counts(120*event.Second, 1, 1)
	c.countsEnded(60*event.Second, 1, 2)
	c.tooLate(59 * event.Second)
}

func TestTumblingHoldsTheWindowBeforeUntilMaxLatenessPastItsEnd(t *testing.T) {
	spec := perMinute()
	spec.Lateness = 10 * event.Second
	c := newCounter(t, spec)
	c.counts(59*event.Second, 1, 1)
	c.counts(70*event.Second-tick, 1, 1)
	c.countsEnded(59*event.Second, 1, 2)
	c.counts(70*event.Second, 1, 2)
	c.tooLate(59 * event.Second)
	c.counts(60*event.Second, 1, 3)
}

func TestTumblingWithoutLatenessHoldsTheCurrentWindowOnly(t *testing.T) {
	c := newCounter(t, windows.Spec{Kind: windows.Tumbling, Per: event.Minute})
	c.counts(59*event.Second, 1, 1)
	c.counts(60*event.Second, 1, 1)
	c.tooLate(59 * event.Second)
}

func TestTumblingHoldsTheWindowDirectlyBeforeThoughNothingHappenedInIt(t *testing.T) {
	c := newCounter(t, perMinute())
	c.counts(30*event.Second, 5, 5)
	c.counts(5*event.Minute, 1, 1)
	c.countsEnded(4*event.Minute, 1, 1)
	c.tooLate(30 * event.Second)
}

func TestTumblingIsSpentWhenNothingLateCanBeCountedIntoIt(t *testing.T) {
	c := newCounter(t, perMinute())
	c.counts(30*event.Second, 1, 1)
	c.isSpent(2 * event.Minute)

	spec := perMinute()
	spec.Lateness = 10 * event.Second
	c = newCounter(t, spec)
	c.counts(30*event.Second, 1, 1)
	c.isSpent(70 * event.Second)
	c.add(65*event.Second, 0)
	c.isSpent(70 * event.Second)
	c.add(69*event.Second, 1)
	c.isSpent(130 * event.Second)
}

func TestNothingMovesTheLatestTimeOnly(t *testing.T) {
	c := newCounter(t, perMinute())
	c.counts(30*event.Second, 1, 1)
	c.counts(40*event.Second, 0, 1)
	c.counts(60*event.Second, 0, 0)
	c.countsEnded(59*event.Second, 0, 1)
	if got := c.spec.Latest(c.state); got != event.Minute {
		t.Errorf("latest time %v", got.Time())
	}
}

func TestAmountsSaturate(t *testing.T) {
	c := newCounter(t, perMinute())
	for range 2 {
		c.state, _ = c.spec.Add(c.state, 0, event.MaxDecimal-1)
	}
	if got := c.spec.Count(c.state); got != event.MaxDecimal {
		t.Errorf("count %d", got)
	}
}

func TestAnEmptyCounterSaysNothing(t *testing.T) {
	for name, spec := range specs() {
		if got := spec.Latest(nil); got != event.NoTime {
			t.Errorf("%s: latest time %d", name, got)
		}
		if spec.Count(nil) != 0 || spec.CountAt(nil, 5) != 0 {
			t.Errorf("%s: it counts", name)
		}
		if from, to := spec.Bounds(nil, 5); from > 5 || to < 5 {
			t.Errorf("%s: its window at 5 is %d to %d", name, from, to)
		}
		if got := spec.Carry(nil, &spec); len(got) > 0 {
			t.Errorf("%s: it goes on as % x", name, got)
		}
		if spec.Below(nil, event.One) != event.NoTime || spec.Spent(nil) != event.NoTime {
			t.Errorf("%s: it ends", name)
		}
	}
}

// A millionth is the least amount there is, and counts as any other.
func TestAMillionthCounts(t *testing.T) {
	start := at("2026-11-21T00:00:00Z")
	for _, spec := range []windows.Spec{perMinute(), civil(windows.Hour, "UTC"), inPanes(event.Minute, 0)} {
		c := newCounter(t, refundable(spec))
		c.state, _ = c.spec.Add(c.state, start, 1)
		c.state = c.spec.Take(c.state, start, 1)
		if got := c.spec.Count(c.state); got != 0 {
			t.Errorf("%v: %v is left of a millionth that was taken back", spec.Kind, got)
		}
	}
	for _, spec := range []windows.Spec{perMinute(), civil(windows.Hour, "UTC")} {
		spec.Lateness = event.Hour
		c := newCounter(t, spec)
		_, end := c.spec.Bounds(nil, start)
		c.state, _ = c.spec.Add(c.state, start, 1)
		c.counts(end, 1, 1)
		if got := c.add(start, 1); got != (windows.Added{Ended: true, Count: event.One + 1}) {
			t.Errorf("%v: the window before has %+v", spec.Kind, got)
		}
	}
}

// Whatever a broken clock says, times are kept where arithmetic is exact.
func TestTimesBeyondMaxTimeCountAsMaxTime(t *testing.T) {
	for name, spec := range specs() {
		c := newCounter(t, spec)
		c.add(event.NoTime, 1)
		if got := spec.Latest(c.state); got != -windows.MaxTime {
			t.Errorf("%s: latest time %d", name, got)
		}
		c.add(1<<63-1, 1)
		if got := spec.Latest(c.state); got != windows.MaxTime {
			t.Errorf("%s: latest time %d", name, got)
		}
		if below, spent := spec.Below(c.state, 1), spec.Spent(c.state); below <= windows.MaxTime || spent < below {
			t.Errorf("%s: below from %d, spent from %d", name, below, spent)
		}
	}
}

// A window ends where the next one begins: its end is not in it.
func TestAtItsEndAWindowIsTheNextOne(t *testing.T) {
	c := newCounter(t, perMinute())
	start := at("2026-11-21T10:00:00Z")
	c.counts(start, 1, 1)
	end := start + event.Minute
	if from, to := c.spec.Bounds(c.state, end); from != end || to != end+event.Minute {
		t.Errorf("at its end it is %v to %v", from.Time(), to.Time())
	}
}
