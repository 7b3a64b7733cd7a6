package enforce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func dimsOfPlan(plan string) []event.Dim {
	return []event.Dim{{Name: "uid", Value: "42"}, {Name: "attrs.plan", Value: plan}}
}

// Who goes on asking is emitted every five seconds, and at once when something is new: a plan, an API.
func TestDenialsAreEmittedWhenTheySaySomethingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDenials()
		emitted := 0
		for range 600 { // a minute
			if d.Emits("v1.x", dimsOfPlan("free")) {
				emitted++
			}
			time.Sleep(100 * time.Millisecond)
		}
		if emitted != 12 {
			t.Errorf("of a minute of denials %d are emitted, want 12", emitted)
		}
		time.Sleep(time.Second)
		if !d.Emits("v1.x", dimsOfPlan("pro")) || !d.Emits("v1.y", dimsOfPlan("pro")) {
			t.Error("a new plan waits, or another API")
		}
		turned := dimsOfPlan("pro")
		turned[0], turned[1] = turned[1], turned[0]
		if d.Emits("v1.x", turned) {
			t.Error("the same dimensions in another order are new")
		}
	})
}

// A service that denies a handful of callers tells of each at once, whatever their hashes.
func TestFewDenialsNeverWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 10_000 {
			d := NewDenials()
			for i := range denialWays {
				if !d.Emits("x", []event.Dim{{Name: "uid", Value: fmt.Sprint(i)}}) {
					t.Fatalf("caller %d of %d waits for another", i+1, denialWays)
				}
			}
		}
	})
}

// However many callers are denied, and whatever they say: the events of a second are bounded.
func TestAFloodOfDenialsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDenials()
		emitted := 0
		for i := range 100_000 {
			if d.Emits("x", []event.Dim{{Name: "ip", Value: fmt.Sprint(i)}}) {
				emitted++
			}
		}
		if emitted > denialSlots || emitted < denialSlots/2 {
			t.Errorf("%d of 100,000 callers are emitted at once, want at most %d", emitted, denialSlots)
		}
	})
}

func TestChoosingDenialsAllocatesNothing(t *testing.T) {
	d, dims := NewDenials(), dimsOfPlan("free")
	if n := testrun.Allocs(100, func() { d.Emits("v1.x", dims) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
