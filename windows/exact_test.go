package windows_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
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

// A count stands below its limit from the same moment on, however many more there were, which
// it still knows: in a state that stays small.
func TestSlidingExactKeepsTheNewestTimesOnly(t *testing.T) {
	c := newCounter(t, exactly(event.Hour))
	for i := range event.Micros(10_000) {
		c.counts(i*event.Millisecond, 1, int64(i+1))
		if most := c.spec.MaxBytes(); len(c.state) > most || len(c.state) > 300 {
			t.Fatalf("%d bytes, MaxBytes is %d", len(c.state), most)
		}
	}
	c.counts(10*event.Second, 1, 10_001)
	c.isBelow(windows.ExactLimit, 10*event.Second-63*event.Millisecond+event.Hour)
	c.isBelow(1, 10*event.Second+event.Hour)
	c.counts(5*event.Second, 1, 10_002)
	c.isBelow(1, 10*event.Second+event.Hour)
}

func TestSlidingExactCountsManyAtOnce(t *testing.T) {
	c := newCounter(t, exactly(event.Second))
	c.counts(0, 1000, 1000)
	c.counts(1, 1, 1001)
	c.counts(2, 70, 1071) // which are more than ExactLimit: nothing older decides
	c.isBelow(64, 2+event.Second)
	c.counts(event.Second, 1, 72) // the thousand have slid out
	c.counts(event.Second+2, 1, 2)
}

// Up to 24 times more than what limits need, counts are exact to the microsecond, whatever comes when.
func TestSlidingExactCountsAreExactAboveTheLimit(t *testing.T) {
	const most = windows.ExactLimit + 1 + 24
	rapid.Check(t, func(t *rapid.T) {
		spec := exactly(event.Minute)
		o := oracleOf(&spec)
		var state []byte
		now := at("2026-11-21T10:00:00Z")
		for range rapid.IntRange(1, 4*most).Draw(t, "events") {
			now += event.Micros(rapid.SampledFrom([]int{1, 300_000, 700_000, 1_000_000}).Draw(t, "step"))
			n := event.Decimal(rapid.SampledFrom([]int{0, 1, 1, 1, 2}).Draw(t, "units")) * event.One
			if o.countAt(now)+n > most*event.One {
				n = 0
			}
			want := o.add(now, n)
			var got windows.Added
			if state, got = spec.Add(state, now, n); got != want || spec.Count(state) != want.Count {
				t.Fatalf("%+v, and %v in the state: want %+v", got, spec.Count(state), want)
			}
			if err := spec.Check(state); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A state without a tail is what it was before there were tails, and a tail makes it one that older
// programs tell from theirs.
func TestOnlyATailIsOfANewerFormat(t *testing.T) {
	c := newCounter(t, exactly(event.Minute))
	for i := range event.Micros(windows.ExactLimit + 1) {
		c.add(i, 1)
	}
	if c.state[0] != 0x13 {
		t.Errorf("65 times have format %#x", c.state[0])
	}
	c.add(100, 1)
	if c.state[0] != 0x23 {
		t.Errorf("66 times have format %#x", c.state[0])
	}
	for _, first := range []byte{0x13, 0x33} {
		other := append([]byte{first}, c.state[1:]...)
		if err := c.spec.Check(other); err == nil || errors.Is(err, windows.ErrNewer) != (first == 0x33) {
			t.Errorf("a tail in format %#x: %v", first, err)
		}
	}
	c.counts(event.Minute, 1, 66) // the first has slid out
	c.counts(event.Minute+1, 0, 65)
	if c.state[0] != 0x13 {
		t.Errorf("65 times that are left have format %#x", c.state[0])
	}
	if err := c.spec.Check(append([]byte{0x23}, c.state[1:]...)); err == nil {
		t.Error("a state without a tail is let pass as one with a tail")
	}
	c.add(event.Minute+2, 100)
	c.state = c.spec.Empty(c.state, false)
	if err := c.spec.Check(c.state); err != nil {
		t.Error(err)
	}
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

// What happened a whole window before the latest time has slid out, and is in no state.
func TestAnExactStateHasNothingThatSlidOut(t *testing.T) {
	c := newCounter(t, exactly(event.Minute))
	c.counts(at("2026-11-21T10:00:00Z"), 0, 0)
	for age, isState := range map[event.Micros]bool{event.Minute - tick: true, event.Minute: false} {
		state := binary.AppendUvarint(slices.Clone(c.state), uint64(age)<<1)
		if err := c.spec.Check(state); (err == nil) != isState {
			t.Errorf("an event %v before the latest time: %v", age.Duration(), err)
		}
	}
}
