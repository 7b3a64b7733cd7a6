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
func (j *Judge) Sweep(clock Clock) (evicted int, err error) {
	if j.log.broker == event.NoTime {
		return 0, nil
	}
	var idle [][]byte
	before := j.log.Time(clock) - j.rules.Set.MaxLateness
	for ref := range j.table.Sweep(SweepKeys) {
		b, err := decodeBlock(j.table.Block(ref))
		if err != nil {
			return 0, errors.Join(errBlock, err)
		}
		if b.spent < before && j.log.durable(b) && len(j.table.issued[string(j.table.Key(ref))]) == 0 && !j.levels.busy(j.table.Key(ref)) {
			idle = append(idle, append([]byte(nil), j.table.Key(ref)...))
		}
	}
	for _, key := range idle {
		j.table.Delete(key)
		j.rules.exempt.forget(key)
		j.log.out.States = append(j.log.out.States, Append{Key: key})
		if j.levels.isStrict(key) {
			j.levels.appendOwn(&protocol.Record{Gone: string(key)}, &Ack{})
		}
	}
	return len(idle), nil
}

// durable reports whether a durable checkpoint covers all that a block has seen.
func (l *Log) durable(b block) bool {
	for src, a := range b.applied {
		if a.next > l.covered[src] {
			return false
		}
	}
	return true
}
