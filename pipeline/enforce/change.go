package enforce

import (
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Replace makes all the verdicts of a shard, and drops its others. A concurrent check sees each
// key's verdicts either as they were or as they are, and verdicts that stay are in force
// throughout. The cost depends on the shard's size, whatever the number of others.
func (t *Table) Replace(shard int, all []verdict.Verdict) {
	t.clock.touch()
	blocks, left := apart(all)
	t.index.Replace(shard, blocks)
	t.left.Replace(shard, left)
	last := t.mode.progress.snapshot(shard)
	t.mode.update()
	if last {
		close(t.mode.progress.full) // when the table answers as one that is ready
	}
}

// Apply adds verdicts to a shard, in order. A clear ends the block of its key and rule. A verdict
// whose seq is below that of the one held is ignored.
func (t *Table) Apply(shard int, changes []verdict.Verdict) {
	t.clock.touch()
	changes, left := apart(changes)
	if len(left) > 0 {
		t.left.Apply(shard, left)
	}
	if !t.mode.progress.snapshotted(shard) {
		t.index.Apply(shard, changes) // what it brings began before the table did
		return
	}
	t.index.ApplyThen(shard, changes, t.latencies.began)
}

// Remove takes the verdict with this record key out of the shard.
func (t *Table) Remove(shard int, recordKey []byte) {
	if k, err := verdict.ParseRecordKey(recordKey); err == nil { // no verdict has an invalid one
		if k.Left {
			t.left.Remove(shard, &k)
			return
		}
		t.index.Remove(shard, &k)
	}
}

// apart takes what keys have left out of a list, which is not changed.
func apart(all []verdict.Verdict) (blocks, left []verdict.Verdict) {
	isLeft := func(v verdict.Verdict) bool { return v.State == verdict.Left }
	if !slices.ContainsFunc(all, isLeft) {
		return all, nil
	}
	for i := range all {
		if isLeft(all[i]) {
			left = append(left, all[i])
		} else {
			blocks = append(blocks, all[i])
		}
	}
	return blocks, left
}

// Heartbeat notes up to which moment a shard is in step. A moment in the future counts as now,
// since a publisher's clock may be ahead.
func (t *Table) Heartbeat(shard int, applied event.Micros) {
	t.mode.progress.heartbeat(shard, applied)
	t.mode.update()
}
