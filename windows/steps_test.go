package windows_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// The steps of a state say what CountAt says, at every later moment.
func TestStepsAreHowTheCountFalls(t *testing.T) {
	falls := 0
	for name, spec := range specs() {
		for seed := range uint64(40) {
			rng := rand.New(rand.NewPCG(seed, 1))
			var state []byte
			at := event.Micros(1_700_000_000) * event.Second
			for range 60 {
				at += event.Micros(rng.Int64N(int64(4 * event.Second)))
				late := event.Micros(0)
				if rng.IntN(3) == 0 {
					late = event.Micros(rng.Int64N(int64(90 * event.Second)))
				}
				state, _ = spec.Add(state, at-late, event.Decimal(rng.IntN(3))*event.One)
			}
			now := spec.Latest(state) + event.Micros(rng.Int64N(int64(event.Minute)))
			steps := spec.Steps(state, now)
			if name == "bucket" || name == "session" {
				if steps != nil {
					t.Fatalf("%s: steps %v", name, steps)
				}
				continue
			}
			moments := []event.Micros{now, now + 1, now + 1000*event.Hour}
			for i, s := range steps {
				if s.Until <= now || i > 0 && s.Until < steps[i-1].Until || len(steps) > windows.MaxPanes {
					t.Fatalf("%s: steps %v behind %v", name, steps, now)
				}
				moments = append(moments, s.Until-1, s.Until)
			}
			for _, m := range moments {
				var sum event.Decimal
				for _, s := range steps {
					if s.Until > m {
						sum += s.Amount
					}
				}
				if want := spec.CountAt(state, m); sum != want {
					t.Fatalf("%s, seed %d: at %v the steps %v make %v, the count is %v", name, seed, m, steps, sum, want)
				}
			}
			falls += len(steps)
		}
	}
	if falls < 500 {
		t.Errorf("only %d steps were seen", falls)
	}
}
