package windows_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

func inPanes(per, resolution event.Micros) windows.Spec {
	return windows.Spec{Kind: windows.Sliding, Per: per, Resolution: resolution}
}

func TestSlidingOf100AMinuteSees99AtTheEndAnd99AtTheBeginning(t *testing.T) {
	c := newCounter(t, inPanes(event.Minute, 0))
	c.counts(59*event.Second, 99, 99)
	c.counts(61*event.Second, 99, 198)
}

func TestPanesAreASixtiethOfPerCutToWholeMicroseconds(t *testing.T) {
	for per, want := range map[event.Micros]event.Micros{
		event.Hour: event.Minute, event.Second: 16_666, 59: 1, 1: 1,
	} {
		if got := newCounter(t, inPanes(per, 0)).spec.Resolution; got != want {
			t.Errorf("per %d: resolution %d, want %d", per, got, want)
		}
	}
}

func TestWhatIsInAPaneCountsUntilThePanesEndPlusPer(t *testing.T) {
	c := newCounter(t, inPanes(event.Minute, event.Second))
	c.counts(500*event.Millisecond, 2, 2)
	c.counts(61*event.Second-tick, 1, 3)
	c.isBelow(3, 61*event.Second)
	c.isBelow(1, 121*event.Second)
	c.isSpent(121 * event.Second)
	if got := c.spec.CountAt(c.state, 61*event.Second); got != event.One {
		t.Errorf("at the first pane's end + per it counts %d", got)
	}
	c.counts(61*event.Second, 1, 2)
}

func TestSlidingHoldsWhatIsInTheWindowAlsoWithPanes(t *testing.T) {
	c := newCounter(t, inPanes(event.Minute, event.Second))
	c.counts(60500*event.Millisecond, 1, 1)
	c.tooLate(500 * event.Millisecond) // though its pane counts
	c.counts(500*event.Millisecond+tick, 1, 2)
	c.counts(30*event.Second, 1, 3)
	c.counts(30*event.Second+tick, 1, 4)
	c.counts(20*event.Second, 1, 5)
	c.counts(40*event.Second, 1, 6)
	c.isBelow(6, 61*event.Second)
	c.isBelow(5, 81*event.Second)
	c.isBelow(4, 91*event.Second)
	c.isBelow(2, 101*event.Second)
}

func TestPanesSumFractions(t *testing.T) {
	c := newCounter(t, inPanes(event.Minute, event.Second))
	c.state, _ = c.spec.Add(c.state, 0, 250_000)
	c.state, _ = c.spec.Add(c.state, 1, 1_500_000)
	c.state, _ = c.spec.Add(c.state, event.Second, 250_001)
	if got := c.spec.Count(c.state); got != 2_000_001 {
		t.Errorf("count %d", got)
	}
}

// A total that saturated is not a difference to go on from.
func TestPanesThatSaturatedSlideOut(t *testing.T) {
	c := newCounter(t, inPanes(event.Minute, event.Second))
	c.counts(0, 1, 1)
	c.state, _ = c.spec.Add(c.state, 10*event.Second, event.MaxDecimal)
	c.add(20*event.Second, 5)
	if got := c.spec.Count(c.state); got != event.MaxDecimal {
		t.Errorf("count %d", got)
	}
	c.isBelow(6, 71*event.Second)
	c.counts(71*event.Second, 1, 6)
}

func TestPanesNeverCountTooLittleAndAtMostOnePaneTooMuch(t *testing.T) {
	for seed := range uint64(testrun.Depth(2000)) {
		r := rand.New(rand.NewPCG(seed, 2))
		per := 1 + event.Micros(r.IntN(5000))
		c := newCounter(t, inPanes(per, (per+event.Micros(r.IntN(100)))/100+event.Micros(r.IntN(int(per)))/4))
		exact := sliding(per, func(at event.Micros) event.Micros { return at })
		latest := event.Micros(r.Int64N(1 << 50))
		for range 40 {
			moment := latest + event.Micros(r.IntN(int(per)))/4 - per/8
			latest = max(latest, moment)
			exact.add(moment, event.One)
			count := c.add(moment, 1).Count
			least, most := exact.countAt(latest), exact.countAt(latest-c.spec.Resolution)
			if count < least || count > most {
				t.Fatalf("rand.NewPCG(%d, 2): %d, not between %d and %d", seed, count, least, most)
			}
		}
	}
}
