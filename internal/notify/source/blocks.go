package source

import (
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Blocks counts the blocks in force by rule: a blocklist.Sink. Many goroutines may use it.
type Blocks struct {
	mu     sync.Mutex
	shards map[int]map[string]blocked
	steps  map[int]bool // shards that were in step once
}

// blocked is one block, by its record key.
type blocked struct {
	rule         string
	since, until event.Micros
	seq          int64
}

// SetShards takes any number.
func (b *Blocks) SetShards(int) error { return nil }

// Replace sets a shard's contents.
func (b *Blocks) Replace(shard int, all []verdict.Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.init()
	b.shards[shard] = make(map[string]blocked, len(all))
	b.apply(shard, all)
}

func (b *Blocks) init() {
	if b.shards == nil {
		b.shards, b.steps = map[int]map[string]blocked{}, map[int]bool{}
	}
}

// Apply takes in changes of a shard.
func (b *Blocks) Apply(shard int, changes []verdict.Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.init()
	if b.shards[shard] == nil {
		b.shards[shard] = map[string]blocked{}
	}
	b.apply(shard, changes)
}

func (b *Blocks) apply(shard int, changes []verdict.Verdict) {
	in := b.shards[shard]
	for i := range changes {
		v := &changes[i]
		if v.State != verdict.Block && v.State != verdict.Clear {
			continue
		}
		key := string(verdict.AppendRecordKey(nil, v))
		if is, ok := in[key]; ok && v.Seq < is.seq {
			continue
		}
		if v.State == verdict.Clear || v.Mode == verdict.Shadow || v.Action == verdict.ActLog {
			delete(in, key)
			continue
		}
		in[key] = blocked{v.Rule, v.Since, v.Until, v.Seq}
	}
}

// Remove takes a verdict out of a shard.
func (b *Blocks) Remove(shard int, recordKey []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.shards[shard], string(recordKey))
}

// Heartbeat notes that a shard is in step.
func (b *Blocks) Heartbeat(shard int, _ event.Micros) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.init()
	b.steps[shard] = true
}

// ByRule counts the keys that each rule blocks at a moment; ok false: the blocklist was not read yet. What has run
// out is forgotten.
func (b *Blocks) ByRule(now time.Time) (keys map[string]int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := event.FromTime(now)
	keys = map[string]int{}
	for _, in := range b.shards {
		for key, is := range in {
			if is.until <= at {
				delete(in, key)
			} else if is.since <= at {
				keys[is.rule]++
			}
		}
	}
	return keys, len(b.steps) > 0
}
