package enforce

import (
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
)

// nearly is the distance to a verdict's beginning or end within which checks use the system's clock rather than the
// coarse one.
const nearly = event.Second

// clock is the time that checks use.
type clock struct {
	coarse atomic.Int64        // the time that Run stores; 0 while Run isn't running
	system func() event.Micros // the time for checks that find no coarse time
}

// now returns the time: at most Config.Resolution behind the system's clock.
func (c *clock) now() event.Micros {
	if at := c.coarse.Load(); at != 0 {
		return event.Micros(at)
	}
	return c.system()
}

// read returns the time, and how near to it checks use the system's clock instead.
func (c *clock) read() (at, near event.Micros) {
	if at := c.coarse.Load(); at != 0 {
		return event.Micros(at), nearly
	}
	return c.system(), 0
}

// touch updates the coarse time, so that a verdict that arrives is in force at once.
func (c *clock) touch() {
	if at := c.coarse.Load(); at != 0 {
		c.coarse.CompareAndSwap(at, int64(now()))
	}
}
