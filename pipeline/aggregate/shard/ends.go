package shard

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// holdBack takes those out of changes that wait.
func (s *issuing) holdBack(key []byte, changes []verdict.Verdict, moves []rules.Move, clock Clock) []verdict.Verdict {
	if len(moves) == 0 || clock.Broker == event.NoTime {
		return changes
	}
	return slices.DeleteFunc(changes, func(v verdict.Verdict) bool {
		i := slices.IndexFunc(moves, func(m rules.Move) bool { return m.Rule == v.Rule })
		if i < 0 || v.State != verdict.Block {
			return false
		}
		if e := s.moved.find(string(key), v.Rule); e != nil && e.v != nil {
			s.tally.Overtaken++
		}
		return s.moved.keep(string(key), &v, &moves[i], clock.Broker)
	})
}

// EndsWaiting is how many ends of blocks have moved and wait to be published.
func (s *issuing) EndsWaiting() int { return s.moved.waiting }

// EndsDue returns the keys of which PublishEnds has something to publish now, or of all ends that
// wait.
func (s *issuing) EndsDue(all bool, clock Clock) []string { return s.moved.due(clock.Broker, all) }

// PublishEnds publishes the ends of a key's blocks that are due, which may be fewer than EndsDue
// has found.
func (s *issuing) PublishEnds(key string, all bool, clock Clock) {
	changes := s.moved.take(key, clock.Broker, all)
	ref, known := s.table.Get([]byte(key))
	if len(changes) == 0 || !known {
		return
	}
	// Not the event's broker time: how long it waited on purpose is no latency.
	s.issue(ref, changes, event.NoTime)
}
