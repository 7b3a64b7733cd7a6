package rules

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		{since: noon, until: noon + 5*event.Minute, count: 101 * event.One, limit: 100 * event.One, partition: 3, offset: 118, id: []byte("e1")},
		{since: -1, until: math.MaxInt64, count: event.MaxDecimal, limit: 1, partition: -1, offset: -1, id: []byte{}},
		{since: noon, until: noon, id: make([]byte, 128)},
	} {
		wire := want.append(nil)
		if len(wire) != want.size() {
			t.Errorf("%+v: %d bytes, size says %d", want, len(wire), want.size())
		}
		got, rest, err := readBlock(append(wire, "rest"...))
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(block{})); err != nil || diff != "" || string(rest) != "rest" {
			t.Errorf("%v, rest %q (- want):\n%s", err, rest, diff)
		}
	}
}
