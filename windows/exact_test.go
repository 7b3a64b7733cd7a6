package windows_test

import (
	"testing"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/windows"
)

func exactly(per event.Micros) windows.Spec {
	return windows.Spec{Kind: windows.Sliding, Per: per, Exact: true}
}

// Of three in five seconds, the event of 0:00 has slid out at 0:05; at 0:06 there are five.
func TestSlidingOf3Per5Seconds(t *testing.T) {
	c := newCounter(t, exactly(5*event.Second))
	c.counts(0, 1, 1)
	c.counts(5*event.Second, 1, 1)
	c.counts(5*event.Second, 1, 2)
	c.counts(6*event.Second, 1, 3)
	c.counts(6*event.Second, 1, 4)
	c.counts(6*event.Second, 1, 5)
	c.isBelow(3, 11*event.Second)
	c.isBelow(4, 10*event.Second)
	c.isBelow(5, 10*event.Second)
	c.isBelow(6, 6*event.Second)
}

func TestSlidingCoversItsEndButNotItsStart(t *testing.T) {
	c := newCounter(t, exactly(event.Second))
	c.counts(0, 1, 1)
	c.counts(event.Second-tick, 1, 2)
	c.counts(event.Second, 1, 2)
}

func TestSlidingHoldsWhatIsInTheWindow(t *testing.T) {
	c := newCounter(t, exactly(event.Minute))
	c.counts(event.Minute, 1, 1)
	c.tooLate(0)
	c.counts(tick, 1, 2)
	c.counts(30*event.Second, 2, 4)
	c.counts(30*event.Second, 1, 5)
	c.counts(20*event.Second, 1, 6)
	c.isBelow(6, event.Minute+tick)
	c.isBelow(5, 80*event.Second)
	c.isBelow(4, 90*event.Second)
	c.isBelow(1, 120*event.Second)
	c.isSpent(120 * event.Second)
}

// A count stands below its limit from the same moment on, however many more there were.
func TestSlidingExactKeepsTheNewestTimesOnly(t *testing.T) {
	c := newCounter(t, exactly(event.Hour))
	for i := range event.Micros(10_000) {
		c.add(i*event.Millisecond, 1)
		if most := c.spec.MaxBytes(); len(c.state) > most {
			t.Fatalf("%d bytes, MaxBytes is %d", len(c.state), most)
		}
	}
	c.counts(10*event.Second, 1, windows.ExactLimit+1)
	c.isBelow(windows.ExactLimit, 10*event.Second-63*event.Millisecond+event.Hour)
	c.isBelow(1, 10*event.Second+event.Hour)
	c.counts(5*event.Second, 1, windows.ExactLimit+1)
	c.isBelow(1, 10*event.Second+event.Hour)
}

func TestSlidingExactCountsManyAtOnce(t *testing.T) {
	c := newCounter(t, exactly(event.Second))
	c.counts(0, 1000, 1000)
	c.counts(1, 1, 1001)
	c.counts(2, 70, 70) // which are more than ExactLimit: nothing older matters
	c.isBelow(64, 2+event.Second)
	c.counts(event.Second+2, 1, 1)
}

func TestSlidingExactWithoutAmountsIsSpent(t *testing.T) {
	c := newCounter(t, exactly(event.Second))
	c.counts(5, 0, 0)
	c.isSpent(5)
	c.counts(7, 1, 1)
	c.counts(9, 0, 1)
	c.isSpent(7 + event.Second)
	c.counts(8+event.Second, 0, 0)
	c.isSpent(8 + event.Second)
}
