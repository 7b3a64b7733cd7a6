package enforce

import (
	"slices"
	"sync"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/verdict"
)

// localLimit replaces a rule while the table is stale: a bucket per key, by GCRA (ITU-T I.371). It
// takes a lock, which other checks don't, but only one of 64, and only to compare eight numbers.
//
// A key is known by its hash, which cannot be computed without the process's seed. Two keys with
// the same 64 bits share a bucket. A key has its place in one of eight slots, so the cost is the
// same for any number of keys. When all eight are taken, it replaces the key whose bucket is full
// again first, which loses the least.
type localLimit struct {
	verdict verdict.Verdict // the deciding one of its denials: the rule, its limit and APIs
	key     index.Shape
	every   float64 // µs until a token is back
	burst   float64 // tokens

	once   sync.Once
	shards []localShard // made for the first token: most limiters are never needed
}

const (
	localShards  = 64
	localSets    = 256 // of a shard
	localWays    = 8
	maxLocalKeys = localShards * localSets * localWays // bounds a limiter's memory: 2 MiB
)

// localShard holds the buckets of a part of the keys.
type localShard struct {
	mu   sync.Mutex
	sets [localSets][localWays]localKey
}

// localKey holds the moment at which a key's bucket is full again, in µs of the table's monotonic clock. A slot whose
// bucket is full is free for another key.
type localKey struct {
	hash uint64
	full event.Micros
}

func newLocalLimit(name string, r RuleOnStale, instances int) *localLimit {
	l := &localLimit{
		verdict: verdict.Verdict{Rule: name, Action: verdict.ActBlock, Limit: event.Decimal(r.Limit) * event.One, APIs: slices.Clone(r.APIs)},
		burst:   float64(max(r.Limit/instances, 1)),
	}
	key := slices.Sorted(slices.Values(r.Key))
	if len(key) == 0 {
		key = []string{dimUID}
	}
	l.key = index.ShapeOf(key)
	l.every = float64(r.Per.Microseconds()) * float64(instances) / float64(r.Limit)
	return l
}

// take takes a token. ok is false when there is none until wait has passed. at is a time of the
// monotonic clock: the wall clock may be set back, and keys would wait for the same hour again.
func (l *localLimit) take(at event.Micros, api string, dims []event.Dim) (wait event.Micros, ok bool) {
	if !l.verdict.Covers(api) {
		return 0, true
	}
	hash, ok := l.key.Hash(api, dims)
	if !ok {
		return 0, true
	}
	l.once.Do(func() { l.shards = make([]localShard, localShards) })
	// The bits of several hashes' sum are not evenly distributed.
	spread := hash * 0x9E3779B97F4A7C15
	shard := &l.shards[spread>>58]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k := slotFor(&shard.sets[spread>>50&(localSets-1)], hash)
	full := at
	if k.hash == hash {
		full = max(full, k.full)
	}
	if next := full + event.Micros(l.every); float64(next-at) <= l.burst*l.every+1 {
		*k = localKey{hash, next}
		return 0, true
	}
	return full - at + event.Micros(l.every) - event.Micros(l.burst*l.every), false
}

// slotFor returns the slot of the key with this hash, or else the slot to replace.
func slotFor(set *[localWays]localKey, hash uint64) *localKey {
	first := &set[0]
	for i := range set {
		if k := &set[i]; k.hash == hash {
			return k
		} else if k.full < first.full {
			first = k
		}
	}
	return first
}
