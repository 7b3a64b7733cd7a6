package owner

import (
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

// brokerClock knows by how much a broker's clock is ahead of this machine's, from when it says that it has
// appended a record. Verdicts go by brokers' clocks, so this machine's alone does not tell which are over.
type brokerClock struct {
	known atomic.Bool
	ahead atomic.Int64 // microseconds
}

// appended takes in an acknowledgement; of a topic without LogAppendTime it has no time, and the clocks are
// taken to agree.
func (c *brokerClock) appended(at time.Time) {
	if !at.IsZero() {
		c.ahead.Store(time.Until(at).Microseconds())
	}
	c.known.Store(true)
}

// now is the broker's time; ok is false before the first acknowledgement.
func (c *brokerClock) now() (at event.Micros, ok bool) {
	return now() + event.Micros(c.ahead.Load()), c.known.Load()
}

// now is the moment for metrics, and for clocks that are corrected; counting never asks for it.
func now() event.Micros { return event.FromTime(time.Now()) }
