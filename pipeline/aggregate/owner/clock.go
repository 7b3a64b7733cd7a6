package owner

import (
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
)

// brokerClock knows by how much a broker's clock is ahead of this machine's, from the times at
// which brokers append records. Verdicts use brokers' time, so this machine's clock alone cannot
// tell which have ended. The zero value assumes that the clocks agree.
type brokerClock struct {
	known atomic.Bool
	ahead atomic.Int64 // microseconds
}

// appended takes in the time of an acknowledgement. A topic without LogAppendTime has none; the
// clocks are then assumed to agree.
func (c *brokerClock) appended(at time.Time) {
	if !at.IsZero() {
		c.ahead.Store(time.Until(at).Microseconds())
	}
	c.known.Store(true)
}

// now returns the broker's time. ok is false before the first acknowledgement.
func (c *brokerClock) now() (at event.Micros, ok bool) {
	return now() + event.Micros(c.ahead.Load()), c.known.Load()
}

// now is the time for metrics, and for clocks that are corrected. Counting never uses it.
func now() event.Micros { return event.FromTime(time.Now()) }
