package instance

import (
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
)

// clock is the system's clock, but where that is set back it goes on from where it was. If it stood still
// instead, windows would stay full until the system's had caught up: an hour, if it was an hour ahead.
// Calendar windows begin so much too early then, until the process starts again.
type clock struct {
	began time.Time
	ahead atomic.Int64 // the most that the wall clock has been ahead of the µs since began
}

func newClock() *clock { return &clock{began: time.Now()} }

func (c *clock) now() event.Micros {
	now := time.Now()
	return c.at(now.UnixMicro(), now.Sub(c.began).Microseconds())
}

// at is the time when the wall clock shows some µs, and passed is the µs since began by the monotonic one.
func (c *clock) at(wall, passed int64) event.Micros {
	for {
		most := c.ahead.Load()
		if wall-passed <= most {
			return event.Micros(passed + most)
		}
		if c.ahead.CompareAndSwap(most, wall-passed) {
			return event.Micros(wall)
		}
	}
}
