package enforce

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

// progress is how far each shard is in step with the blocklist.
type progress struct {
	born    event.Micros // of the table
	ready   atomic.Int32 // how many shards had a snapshot
	had     []atomic.Bool
	applied []atomic.Int64 // up to when each shard is in step
}

// always is the Heartbeat of a shard that needs nothing to keep it in step.
const always event.Micros = math.MaxInt64

func (p *progress) init(shards int) {
	p.born, p.had, p.applied = now(), make([]atomic.Bool, shards), make([]atomic.Int64, shards)
}

func (p *progress) snapshot(shard int) {
	if p.had[shard].CompareAndSwap(false, true) {
		p.ready.Add(1)
	}
}

// snapshotted reports whether the shard had a snapshot.
func (p *progress) snapshotted(shard int) bool { return p.had[shard].Load() }

func (p *progress) heartbeat(shard int, applied event.Micros) {
	if applied != always {
		applied = min(applied, now())
	}
	p.applied[shard].Store(int64(applied))
}

// complete reports whether every shard had a snapshot.
func (p *progress) complete() bool { return int(p.ready.Load()) == len(p.had) }

// behind is Table.Staleness.
func (p *progress) behind() time.Duration {
	least := event.Micros(p.applied[0].Load())
	for i := range p.applied {
		least = min(least, event.Micros(p.applied[i].Load()))
	}
	if least == 0 {
		least = p.born
	}
	return max(now()-least, 0).Duration()
}
