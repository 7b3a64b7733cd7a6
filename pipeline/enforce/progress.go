package enforce

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
)

// progress tracks each shard's place in the blocklist.
type progress struct {
	born   event.Micros // of the table
	shards atomic.Pointer[shards]
	full   chan struct{} // closed once every shard had a snapshot
}

// shards are as many as the blocklist has. A table that learns their number replaces them, before
// the first snapshot.
type shards struct {
	ready   atomic.Int32 // how many had a snapshot
	had     []atomic.Bool
	applied []atomic.Int64 // up to when each is in step
}

// always is the Heartbeat of a shard that needs nothing to keep it in step.
const always event.Micros = math.MaxInt64

func (p *progress) init(n int) {
	p.born, p.full = now(), make(chan struct{})
	p.shards.Store(newShards(n))
}

func newShards(n int) *shards {
	return &shards{had: make([]atomic.Bool, n), applied: make([]atomic.Int64, n)}
}

func (p *progress) count() int { return len(p.shards.Load().had) }

// snapshot notes a shard's snapshot. last says that it was the first one of the last shard.
func (p *progress) snapshot(shard int) (last bool) {
	s := p.shards.Load()
	return s.had[shard].CompareAndSwap(false, true) && int(s.ready.Add(1)) == len(s.had)
}

// snapshotted reports whether the shard had a snapshot.
func (p *progress) snapshotted(shard int) bool { return p.shards.Load().had[shard].Load() }

func (p *progress) heartbeat(shard int, applied event.Micros) {
	if applied != always {
		applied = min(applied, now())
	}
	p.shards.Load().applied[shard].Store(int64(applied))
}

// complete reports whether every shard had a snapshot.
func (p *progress) complete() bool {
	s := p.shards.Load()
	return int(s.ready.Load()) == len(s.had)
}

// missing are the shards that had no snapshot.
func (p *progress) missing() (all []int) {
	s := p.shards.Load()
	for shard := range s.had {
		if !s.had[shard].Load() {
			all = append(all, shard)
		}
	}
	return all
}

// behind is Table.Staleness.
func (p *progress) behind() time.Duration {
	s := p.shards.Load()
	least := event.Micros(s.applied[0].Load())
	for i := range s.applied {
		least = min(least, event.Micros(s.applied[i].Load()))
	}
	if least == 0 {
		least = p.born
	}
	return max(now()-least, 0).Duration()
}
