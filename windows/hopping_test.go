package windows_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

func hoppingBy(per, every event.Micros) windows.Spec {
	return windows.Spec{Kind: windows.Hopping, Per: per, Every: every, Lateness: event.Hour}
}

// What a tumbling window of a minute lets pass, and one every ten seconds does not.
func TestHoppingOf100AMinuteSees99AtTheEndAnd99AtTheBeginning(t *testing.T) {
	c := newCounter(t, hoppingBy(event.Minute, 10*event.Second))
	c.counts(59*event.Second, 99, 99)
	c.counts(61*event.Second, 99, 198)
}

// A window begins where a pane does: what came within a pane before it does not count.
func TestHoppingWindowsHaveNoMoreThanTheirOwn(t *testing.T) {
	c := newCounter(t, hoppingBy(event.Minute, 10*event.Second))
	c.counts(9999*event.Millisecond, 1, 1)
	c.counts(10*event.Second, 2, 3)
	c.counts(60*event.Second-tick, 3, 6) // in [0s, 60s) is all of it
	c.counts(60*event.Second, 4, 9)      // and in [10s, 70s) is not the first
	c.isBelow(9, 70*event.Second)
	c.isBelow(7, 110*event.Second) // the last three are in the window from 50s on
	c.isBelow(1, 120*event.Second)
	c.isSpent(3 * event.Minute)
}

func TestHoppingIsAlignedToTheEpochPlusOffset(t *testing.T) {
	spec := hoppingBy(event.Minute, 20*event.Second)
	spec.Offset = 7 * event.Second
	c := newCounter(t, spec)
	for now, want := range map[event.Micros]event.Micros{ // the first window that holds now begins
		at("2026-11-21T10:00:07Z"):        at("2026-11-21T09:59:27Z"),
		at("2026-11-21T10:00:07Z") - tick: at("2026-11-21T09:59:07Z"),
		-tick:                             -53 * event.Second,
	} {
		if from, to := spec.Bounds(c.state, now); from != want || to != want+event.Minute {
			t.Errorf("the first window that holds %v is %v to %v", now.Time(), from.Time(), to.Time())
		}
	}
}

func TestALateEventCountsInEachHoppingWindowThatHoldsIt(t *testing.T) {
	c := newCounter(t, hoppingBy(30*event.Second, 10*event.Second))
	c.counts(5*event.Second, 5, 5)
	c.counts(15*event.Second, 1, 6)
	c.counts(45*event.Second, 2, 2) // it is in [20s, 50s) and later ones
	c.countsEnded(15*event.Second, 1, 7)
	c.countsEnded(25*event.Second, 1, 8) // of [0s, 30s); [20s, 50s) has 3
	c.countsEnded(9*event.Second, 1, 9)  // of [0s, 30s)
	c.isBelow(3, 50*event.Second)        // when the one at 25s leaves
	c.counts(59*event.Second, 0, 2)      // [30s, 60s)
	c.countsEnded(29*event.Second, 0, 9) // [0s, 30s) is held until 60s
	c.counts(60*event.Second, 0, 2)
	c.countsEnded(29*event.Second, 0, 3) // [10s, 40s)
	c.tooLate(9 * event.Second)
}

// An event that is late for some windows, but in others that hold the latest time, counts there: the
// greatest count is told, and when no ended window has more, it is the current one.
func TestALateEventIsToldTheGreatestCount(t *testing.T) {
	c := newCounter(t, hoppingBy(30*event.Second, 10*event.Second))
	c.counts(25*event.Second, 1, 1)
	c.counts(45*event.Second, 2, 3)
	c.counts(25*event.Second, 1, 4)
	c.countsEnded(5*event.Second, 0, 2)
}

// With windows that begin where another ends, there is one at a time: tumbling ones.
func TestHoppingByItsLengthIsTumbling(t *testing.T) {
	for seed := range uint64(testrun.Depth(8_000)) {
		r := rand.New(rand.NewPCG(seed, 3))
		data := story(r, 1+r.IntN(40))
		sc := tumblingFrom(data[:head])
		one := refundable(sc.spec)
		other := one
		other.Kind, other.Every = windows.Hopping, one.Per
		a, b := newCounter(t, one), newCounter(t, other)
		now := sc.start
		for i := head; i+1 < len(data); i += 2 {
			now += event.Micros(int8(data[i])) * sc.steps[int(data[i+1])/8%len(sc.steps)]
			n := amount(data[i+1], false)
			switch what := r.IntN(12); {
			case what == 0:
				before := r.IntN(2) == 0
				a.state, b.state = one.Empty(a.state, before), other.Empty(b.state, before)
			case what < 3 && len(a.state) > 0:
				if x, y := one.Holds(a.state, now), other.Holds(b.state, now); x != y {
					t.Fatalf("rand.NewPCG(%d, 3): holds %t, and as tumbling %t", seed, y, x)
				} else if x {
					a.state, b.state = one.Take(a.state, now, n), other.Take(b.state, now, n)
				}
			default:
				var x, y windows.Added
				a.state, x, _ = one.AddSpent(a.state, now, n)
				if b.state, y, _ = other.AddSpent(b.state, now, n); x != y {
					t.Fatalf("rand.NewPCG(%d, 3): %+v, and as tumbling %+v", seed, y, x)
				}
			}
			if x, y := saidOf(a, now), saidOf(b, now); x != y {
				t.Fatalf("rand.NewPCG(%d, 3), %+v: %+v, and as tumbling %+v", seed, other, y, x)
			}
			now = max(now, one.Latest(a.state))
		}
	}
}

// Rules that let events be less late read the states there are: what is not held any more counts nowhere.
func TestLessLatenessReadsTheSameStates(t *testing.T) {
	c := newCounter(t, hoppingBy(30*event.Second, 10*event.Second))
	for i := range event.Micros(6) {
		c.add(i*10*event.Second, 1)
	}
	c.spec.Lateness = 5 * event.Second
	if err := c.spec.Check(c.state); err != nil {
		t.Fatal(err)
	}
	c.countsEnded(22*event.Second, 0, 3) // [20s, 50s) ended 0s ago; [10s, 40s), which has 3, too, is not held
	c.tooLate(19 * event.Second)
	c.counts(51*event.Second, 1, 4)
	c.counts(60*event.Second, 1, 4)
	c.tooLate(29 * event.Second)
	c.isSpent(95 * event.Second)
}

// Ended windows' counts saturate, too, and what saturated leaves them again.
func TestEndedHoppingWindowsSaturate(t *testing.T) {
	c := newCounter(t, hoppingBy(30*event.Second, 10*event.Second))
	for pane := range event.Micros(3) {
		c.state, _ = c.spec.Add(c.state, pane*10*event.Second, event.MaxDecimal)
	}
	c.state, _ = c.spec.Add(c.state, 30*event.Second, event.One)
	for pane, want := range []event.Decimal{event.MaxDecimal, event.MaxDecimal, event.MaxDecimal} {
		if got := c.add(event.Micros(pane)*10*event.Second, 1).Count; got != want {
			t.Errorf("pane %d: %v", pane, got)
		}
	}
	c.add(59*event.Second, 2)
	if got := c.add(29*event.Second, 0); got != (windows.Added{Ended: true, Count: event.MaxDecimal}) {
		t.Errorf("the window with one that saturated: %+v", got)
	}
	if got := c.spec.Count(c.state); got != 3*event.One {
		t.Errorf("the current one has %v", got)
	}
}

type said struct {
	count, later          event.Decimal
	from, to, below, some event.Micros
	spent                 event.Micros
}

func saidOf(c *counter, now event.Micros) said {
	s := said{
		count: c.spec.Count(c.state), later: c.spec.CountAt(c.state, now+c.spec.Per/2),
		below: c.spec.Below(c.state, 1), some: c.spec.Below(c.state, 3*event.One), spent: c.spec.Spent(c.state),
	}
	s.from, s.to = c.spec.Bounds(c.state, now)
	return s
}
