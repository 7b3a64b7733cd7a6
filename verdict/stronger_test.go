package verdict

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
)

// From the strongest to the weakest: each beats all behind it.
func TestWhichVerdictWins(t *testing.T) {
	const early, late event.Micros = 100, 200
	order := []Verdict{
		{Rule: "z", Action: ActBlock, Until: late},
		{Rule: "a", Action: ActBlock, Until: early},
		{Rule: "b", Action: ActBlock, Until: early},
		{Rule: "a", Action: ActChallenge, Until: late},
		{Rule: "a", Action: ActThrottle, Until: late},
		{Rule: "a", Action: ActLog, Until: late},
		{Rule: "a", Mode: Shadow, Action: ActBlock, Until: late},
		{Rule: "a", Mode: Shadow, Action: ActLog, Until: late},
		{Rule: "a", State: Warn, Action: ActBlock, Until: late},
		{Rule: "a", State: Warn, Mode: Shadow, Action: ActLog, Until: late},
	}
	for i := range order {
		for j := range order {
			if got := Stronger(&order[i], &order[j]); got != (i < j) {
				t.Errorf("%+v is stronger than %+v: %v", order[i], order[j], got)
			}
		}
		if order[i].Decides() != (i < 6) {
			t.Errorf("%+v decides: %v", order[i], order[i].Decides())
		}
	}
}

// Whatever the order in which verdicts came, the same one is the strongest.
func TestTheOrderOfVerdictsIsTotal(t *testing.T) {
	one := rapid.Custom(func(t *rapid.T) Verdict {
		return Verdict{
			Rule:  rapid.SampledFrom([]string{"a", "a/burst", "b"}).Draw(t, "rule"),
			State: rapid.SampledFrom([]State{Block, Block, Warn}).Draw(t, "state"), Mode: Mode(rapid.IntRange(0, 1).Draw(t, "mode")),
			Action: Action(rapid.IntRange(0, 3).Draw(t, "action")), Until: event.Micros(rapid.IntRange(0, 2).Draw(t, "until")),
		}
	})
	same := func(a, b Verdict) bool { // but for what never tells two verdicts of one rule on one key apart
		return a.Rule == b.Rule && a.rank() == b.rank() && a.Action == b.Action && a.Until == b.Until
	}
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(one, 1, 8).Draw(t, "verdicts")
		compare := func(a, b Verdict) int { return Compare(&a, &b) }
		sorted := slices.SortedFunc(slices.Values(list), compare)
		slices.Reverse(list)
		for i, v := range slices.SortedFunc(slices.Values(list), compare) {
			if !same(v, sorted[i]) {
				t.Fatalf("sorted from the back: %+v stands where %+v stood", v, sorted[i])
			}
		}
		if best := slices.MinFunc(list, compare); !same(best, sorted[0]) {
			t.Fatalf("the strongest is %+v, and %+v is sorted first", best, sorted[0])
		}
	})
}
