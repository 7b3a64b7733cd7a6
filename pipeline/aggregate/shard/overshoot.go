package shard

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// OvershootBounds are the greatest delays of Overshoot.Delays, but of the last, which has no
// bound.
var OvershootBounds = [...]event.Micros{
	event.Millisecond, 2500, 5 * event.Millisecond, 10 * event.Millisecond, 25 * event.Millisecond, 50 * event.Millisecond,
	100 * event.Millisecond, 250 * event.Millisecond, 500 * event.Millisecond,
	event.Second, 2500 * event.Millisecond, 5 * event.Second, 10 * event.Second, event.Minute,
}

// Overshoot counts the events above one limit since its owner last looked.
type Overshoot struct {
	Events uint64 // that verdicts were to keep out
	Shadow uint64 // that nothing was to keep out, since the limit is in shadow mode

	// Delays are how long after the beginning of the verdict in force an event happened, by its own
	// time: by bucket, and altogether. Only of Events, and of these only where there was a verdict.
	Delays [len(OvershootBounds) + 1]uint64
	Delay  event.Micros
}

// Empty reports whether there was none.
func (o *Overshoot) Empty() bool { return o.Events == 0 && o.Shadow == 0 }

// Add adds what another one has.
func (o *Overshoot) Add(other *Overshoot) {
	o.Events += other.Events
	o.Shadow += other.Shadow
	o.Delay += other.Delay
	for i, n := range other.Delays {
		o.Delays[i] += n
	}
}

func (o *Overshoot) note(a *rules.Above) {
	if a.Shadow {
		o.Shadow++
		return
	}
	o.Events++
	if a.Since == event.NoTime {
		return
	}
	i, _ := slices.BinarySearch(OvershootBounds[:], a.Since)
	o.Delays[i]++
	o.Delay += a.Since
}
