package shard

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// holdBack takes those out of changes that wait.
func (vs *Verdicts) holdBack(key []byte, changes []verdict.Verdict, moves []rules.Move, clock Clock) []verdict.Verdict {
	if len(moves) == 0 || clock.Broker == event.NoTime {
		return changes
	}
	return slices.DeleteFunc(changes, func(v verdict.Verdict) bool {
		i := slices.IndexFunc(moves, func(m rules.Move) bool { return m.Rule == v.Rule })
		if i < 0 || v.State != verdict.Block {
			return false
		}
		if e := vs.table.moved.find(string(key), v.Rule); e != nil && e.v != nil {
			vs.log.tally.Overtaken++
		}
		return vs.table.moved.keep(string(key), &v, &moves[i], clock.Broker)
	})
}

// EndsWaiting is how many ends of blocks have moved and wait to be published.
func (vs *Verdicts) EndsWaiting() int { return vs.table.moved.waiting }

// EndsDue returns the keys of which PublishEnds has something to publish now, or of all ends that
// wait.
func (vs *Verdicts) EndsDue(all bool, clock Clock) []string {
	return vs.table.moved.due(clock.Broker, all)
}

// PublishEnds publishes the ends of a key's blocks that are due, which may be fewer than EndsDue
// has found.
func (vs *Verdicts) PublishEnds(key string, all bool, clock Clock) {
	changes := vs.table.moved.take(key, clock.Broker, all)
	ref, known := vs.table.Get([]byte(key))
	if len(changes) == 0 || !known {
		return
	}
	// Not the event's broker time: how long it waited on purpose is no latency.
	vs.issue(ref, changes, event.NoTime)
}
