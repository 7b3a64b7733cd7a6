package rules

import (
	"math"
	"testing"

	"github.com/tallygate/tallygate/event"
)

func TestRoundUpToAGrain(t *testing.T) {
	for _, tc := range []struct{ at, grain, want event.Micros }{
		{20, 10, 20},
		{11, 10, 20},
		{19, 10, 20},
		{0, 10, 0},
		{-1, 10, 0},
		{-10, 10, -10},
		{-11, 10, -10},
		{11, 0, 11},
		{math.MaxInt64 - 3, 1 << 40, math.MaxInt64},
	} {
		if got := roundUp(tc.at, tc.grain); got != tc.want {
			t.Errorf("%d up to a multiple of %d: %d, want %d", tc.at, tc.grain, got, tc.want)
		}
	}
}
