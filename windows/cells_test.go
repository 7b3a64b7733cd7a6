package windows_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// Permits are counted by cells, and events by states: were a cell to end first, a strict limit would grant what the
// count has no room for.
func TestCellsLastAsLongAsCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	names, specs := goldenSpecs()
	with := 0
	for _, name := range names {
		s := specs[name]
		grain, offset, keeps, ok := s.Cells()
		if !ok || s.Distinct {
			continue
		}
		with++
		for range 200 {
			at := event.Micros(r.Int64N(int64(1000 * event.Day)))
			state, _ := s.Add(nil, at, event.One)
			ends := (at-offset)/grain*grain + offset + keeps
			if at < offset { // division rounds to zero
				continue
			}
			if s.CountAt(state, at) != event.One || ends <= at {
				t.Fatalf("%s: of one at %d, %v count then, and its cell ends at %d", name, at, s.CountAt(state, at), ends)
			}
			for range 20 {
				if now := ends + event.Micros(r.Int64N(int64(2*keeps))); s.CountAt(state, now) != 0 {
					t.Fatalf("%s: one at %d still counts at %d, and its cell has ended at %d", name, at, now, ends)
				}
			}
		}
	}
	if with < 5 {
		t.Errorf("%d kinds of windows have cells", with)
	}
}
