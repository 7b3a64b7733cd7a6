package enforce

import (
	"math"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Replace makes all the verdicts of a shard, and drops what else it had. A check that runs meanwhile sees each key's verdicts either
// as they were or as they are, and what stays is in force throughout. It costs as much as the shard is large, however
// many others there are.
func (t *Table) Replace(shard int, all []verdict.Verdict) {
	t.touch()
	t.index.Replace(shard, all)
	if t.had[shard].CompareAndSwap(false, true) {
		t.ready.Add(1)
	}
	t.watch()
}

// Apply adds verdicts to a shard, in order. A clear ends the block of its key and rule; a
// verdict whose seq is below that of the one held is ignored.
func (t *Table) Apply(shard int, changes []verdict.Verdict) {
	t.touch()
	t.index.Apply(shard, changes)
}

// Remove takes the verdict with this record key out of the shard.
func (t *Table) Remove(shard int, recordKey []byte) {
	if k, err := verdict.ParseRecordKey(recordKey); err == nil { // no verdict has another
		t.index.Remove(shard, &k)
	}
}

// always is what a Heartbeat says of a shard that nothing has to keep in step.
const always event.Micros = math.MaxInt64

// Heartbeat notes up to which moment a shard is in step: at most up to now, since a publisher's clock may be ahead.
func (t *Table) Heartbeat(shard int, applied event.Micros) {
	if applied != always {
		applied = min(applied, now())
	}
	t.applied[shard].Store(int64(applied))
	t.watch()
}

// touch moves the coarse clock, so that a verdict that comes in is in force at once.
func (t *Table) touch() {
	if c := t.clock.Load(); c != 0 {
		t.clock.CompareAndSwap(c, int64(now()))
	}
}

// sweep frees what has run out by the wall's clock, as far as that is believed, and by more than the grace.
func (t *Table) sweep(at event.Micros) {
	t.index.Sweep(min(at, t.steps.believed()) - event.FromDuration(t.cfg.Grace))
}
