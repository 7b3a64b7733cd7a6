package windows_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// Whatever a sliding window was and becomes, again and again, what it counts is never too little, and too much by
// at most what came within two panes before its window, or within the part of a tail.
func TestCarriedCountsAreNeverTooLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const per, pane = event.Minute, event.Second
		var specs []*windows.Spec
		for _, s := range []windows.Spec{
			{Kind: windows.Sliding, Per: per, Exact: true}, {Kind: windows.Sliding, Per: per, Exact: true, Refunds: true},
			{Kind: windows.Sliding, Per: per, Resolution: pane}, {Kind: windows.Sliding, Per: per, Resolution: pane, Refunds: true},
		} {
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
			specs = append(specs, &s)
		}
		spec := specs[0]
		var state []byte
		var events []happened
		now := at("2026-11-21T10:00:00Z")
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			now += event.Micros(rapid.IntRange(0, 4_000_000).Draw(t, "step"))
			when := now - event.Micros(rapid.SampledFrom([]int{0, 0, 0, 1, 500_000, 9_000_000}).Draw(t, "late"))
			n := event.Decimal(rapid.SampledFrom([]int{1, 1, 0, 3, 40}).Draw(t, "amount")) * event.One
			state, _ = spec.Add(state, when, n)
			events = append(events, happened{at: when, n: n})
			if rapid.IntRange(0, 3).Draw(t, "change") == 0 {
				next := rapid.SampledFrom(specs).Draw(t, "next")
				state = next.Carry(slices.Clone(state), spec)
				spec = next
			}
			if err := spec.Check(state); err != nil {
				t.Fatalf("%+v: %v: % x", spec, err, state)
			}
			latest := spec.Latest(state)
			var least, most event.Decimal
			for _, e := range events {
				if e.at > latest-per {
					least += e.n
				}
				if e.at > latest-per-2*pane-per/16 {
					most += e.n
				}
			}
			if got := spec.Count(state); got < least || got > most {
				t.Fatalf("%+v: %v, not between %v and %v", spec, got, least, most)
			}
			if spec.Below(state, event.One) < latest {
				t.Fatalf("%+v: below one before the latest time", spec)
			}
		}
	})
}

// Distinct values are carried over, too: those of panes count until their pane's end at most.
func TestCarriedValuesGoOn(t *testing.T) {
	exact := windows.Spec{Kind: windows.Sliding, Per: event.Minute, Distinct: true, Exact: true}
	panes := windows.Spec{Kind: windows.Sliding, Per: event.Minute, Distinct: true, Resolution: 10 * event.Second}
	start := at("2026-11-21T10:00:01Z")
	for _, way := range [][2]*windows.Spec{{&exact, &panes}, {&panes, &exact}} {
		from, to := way[0], way[1]
		var state []byte
		for i := range event.Micros(5) {
			state, _ = from.AddValue(state, start+i*event.Second, uint64(i))
		}
		state = to.Carry(state, from)
		if err := to.Check(state); err != nil || to.Count(state) != 5*event.One {
			t.Errorf("%v values, %v", to.Count(state), err)
		}
		if got := to.CountAt(state, start+14*event.Second+event.Minute); got != 0 {
			t.Errorf("%v values are left", got)
		}
		if state, _ = to.AddValue(state, start+5*event.Second, 3); to.Count(state) != 5*event.One || to.Check(state) != nil {
			t.Errorf("%v values, %v", to.Count(state), to.Check(state))
		}
	}
}
