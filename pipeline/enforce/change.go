package enforce

import (
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Replace makes all the verdicts of a shard, and drops its others. A concurrent check sees each
// key's verdicts either as they were or as they are, and verdicts that stay are in force
// throughout. The cost depends on the shard's size, whatever the number of others.
func (t *Table) Replace(shard int, all []verdict.Verdict) {
	t.clock.touch()
	t.index.Replace(shard, all)
	t.mode.progress.snapshot(shard)
	t.mode.update()
}

// Apply adds verdicts to a shard, in order. A clear ends the block of its key and rule. A verdict
// whose seq is below that of the one held is ignored.
func (t *Table) Apply(shard int, changes []verdict.Verdict) {
	t.clock.touch()
	if !t.mode.progress.snapshotted(shard) {
		t.index.Apply(shard, changes) // what it brings began before the table did
		return
	}
	t.index.ApplyThen(shard, changes, t.latencies.began)
}

// Remove takes the verdict with this record key out of the shard.
func (t *Table) Remove(shard int, recordKey []byte) {
	if k, err := verdict.ParseRecordKey(recordKey); err == nil { // no verdict has an invalid one
		t.index.Remove(shard, &k)
	}
}

// Heartbeat notes up to which moment a shard is in step. A moment in the future counts as now,
// since a publisher's clock may be ahead.
func (t *Table) Heartbeat(shard int, applied event.Micros) {
	t.mode.progress.heartbeat(shard, applied)
	t.mode.update()
}
