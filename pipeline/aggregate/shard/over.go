package shard

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// worthPublishing leaves out the blocks that are over already: behind a backlog they would only
// make it longer. What was published before must not outlive them: a block that ends one that is in
// force is kept. state is the key's from before the step; in it what is left out is in force as if
// it had been published, and ends by itself. Where events have their producers' times, what is over
// was perhaps over when it was sent: a backlog of ours cannot be told from history, and all is
// published.
func (j *Judge) worthPublishing(changes []verdict.Verdict, state, key []byte, step *gatheredStep, clock Clock) []verdict.Verdict {
	if len(changes) == 0 || clock.Broker == event.NoTime || j.log.cfg.ProducerTimes {
		return changes
	}
	before := len(changes)
	changes = slices.DeleteFunc(changes, func(v verdict.Verdict) bool {
		if v.State != verdict.Block || v.Until > clock.Broker {
			return false
		}
		prior := j.rules.inForce(state, key, step.at, v.Rule)
		if prior == nil {
			return v.Cause == step.cause // this event's own: nothing was in force ahead of it
		}
		return prior.Until <= clock.Broker
	})
	j.log.tally.Over += uint64(before - len(changes))
	return changes
}

// inForce is what a limit has in force for a key at a time.
func (u *inUse) inForce(state, key []byte, at event.Micros, limit string) *verdict.Verdict {
	if len(state) == 0 {
		return nil
	}
	for _, e := range u.Set.Explain(state, key, at, "") {
		if e.Rule == limit {
			return e.Verdict
		}
	}
	return nil
}
