package shard

import (
	"errors"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/event"
)

// SweepKeys is how many keys one Sweep looks at.
const SweepKeys = 64

// Sweep looks at the next SweepKeys keys, and lets those leave that are idle: their state matters
// to no event that may still come, and their applied offsets to no replay. It returns how many
// left.
func (s *judging) Sweep(clock Clock) (evicted int, err error) {
	if s.broker == event.NoTime {
		return 0, nil
	}
	var idle [][]byte
	before := s.Time(clock) - s.rules.Set.MaxLateness
	for ref := range s.table.Sweep(SweepKeys) {
		b, err := decodeBlock(s.table.Block(ref))
		if err != nil {
			return 0, errors.Join(errBlock, err)
		}
		if b.spent < before && s.durable(b) && len(s.issued[string(s.table.Key(ref))]) == 0 && !s.levels.busy(s.table.Key(ref)) {
			idle = append(idle, append([]byte(nil), s.table.Key(ref)...))
		}
	}
	for _, key := range idle {
		s.table.Delete(key)
		s.exempt.forget(key)
		s.out.States = append(s.out.States, Append{Key: key})
		if s.isStrict(key) {
			s.appendOwn(&protocol.Record{Gone: string(key)}, &Ack{})
		}
	}
	return len(idle), nil
}

// durable reports whether a durable checkpoint covers all that a block has seen.
func (s *issuing) durable(b block) bool {
	for src, a := range b.applied {
		if a.next > s.covered[src] {
			return false
		}
	}
	return true
}
