package enforce

import (
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

// nearly is how near to a verdict's beginning or end checks use the system's clock rather than the
// coarse one.
const nearly = event.Second

// Now returns the time that checks use: at most Config.Resolution behind the system's clock.
func (t *Table) Now() event.Micros {
	if c := t.clock.Load(); c != 0 {
		return event.Micros(c)
	}
	return t.systemTime()
}

// coarse returns the time that checks use, and how near to it they use the system's clock instead.
func (t *Table) coarse() (at, near event.Micros) {
	if c := t.clock.Load(); c != 0 {
		return event.Micros(c), nearly
	}
	return t.systemTime(), 0
}

// systemTime is the time for checks that don't use Run's clock.
func (t *Table) systemTime() event.Micros {
	t.checkRan()
	return now()
}

// touch updates the coarse clock, so that a verdict that arrives is in force at once.
func (t *Table) touch() {
	if c := t.clock.Load(); c != 0 {
		t.clock.CompareAndSwap(c, int64(now()))
	}
}

// observeClocks returns the wall time, and notes whether that clock made a step.
func (t *Table) observeClocks() event.Micros {
	at := time.Now()
	t.steps.observe(event.FromTime(at), at.Sub(t.started))
	return event.FromTime(at)
}
