package aggregate

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
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

// worthPublishing leaves out the blocks that are over already: behind a backlog they would only
// make it longer. What was published before must not outlive them: a block that ends one that is in
// force is kept. state is the key's from before the step; in it what is left out is in force as if it had
// been published, and ends by itself. Where events have their producers' times, what is over was perhaps
// over when it was sent: a backlog of ours cannot be told from history, and all is published.
func (p *partition) worthPublishing(changes []verdict.Verdict, state, key []byte, s *gatheredStep) []verdict.Verdict {
	if len(changes) == 0 {
		return changes
	}
	at, ok := p.clockOfBroker.now()
	if !ok || p.agg.cfg.BrokerTime == brokerTimeCreate {
		return changes
	}
	before := len(changes)
	changes = slices.DeleteFunc(changes, func(v verdict.Verdict) bool {
		if v.State != verdict.Block || v.Until > at {
			return false
		}
		prior := p.inForce(state, key, s.at, v.Rule)
		if prior == nil {
			return v.Cause == s.cause // this event's own: nothing was in force ahead of it
		}
		return prior.Until <= at
	})
	p.agg.metrics.verdictsOver.Add(float64(before - len(changes)))
	return changes
}

// inForce is what a limit has in force for a key at a time.
func (p *partition) inForce(state, key []byte, at event.Micros, limit string) *verdict.Verdict {
	if len(state) == 0 {
		return nil
	}
	for _, e := range p.rules.set.Explain(state, key, at, "") {
		if e.Rule == limit {
			return e.Verdict
		}
	}
	return nil
}
