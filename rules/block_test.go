package rules

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallygate/tallygate/pipeline/event"
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

func TestBlocksComeBackAsTheyWere(t *testing.T) {
	for _, want := range []block{
		{since: noon, until: noon + 5*event.Minute, count: 101 * event.One, limit: 100 * event.One, partition: 3, offset: 118, id: []byte("e1"), face: 7, shadow: true, name: []byte("search/candidate")},
		{since: -1, until: math.MaxInt64, count: event.MaxDecimal, limit: 1, partition: -1, offset: -1, id: []byte{}},
		{since: noon, until: noon, id: make([]byte, 128)},
	} {
		r := varints{b: append(want.append(nil), "rest"...)}
		got := r.block(stateVersion)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(block{}), cmpopts.EquateEmpty()); r.bad || diff != "" || string(r.b) != "rest" {
			t.Errorf("rest %q, %v (- want):\n%s", r.b, r.bad, diff)
		}
	}
}
