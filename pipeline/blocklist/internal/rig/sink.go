package rig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Memory is a blocklist.Sink that keeps what an enforcer would: blocks, by record key.
type Memory struct {
	mu       sync.Mutex
	held     map[string]verdict.Verdict
	shards   map[string]int
	applied  map[int]event.Micros
	replaced int
	dropped  []string // what a Replace took away
}

// NewMemory returns one that holds nothing.
func NewMemory() *Memory {
	return &Memory{held: map[string]verdict.Verdict{}, shards: map[string]int{}, applied: map[int]event.Micros{}}
}

// Replace implements Sink.
func (m *Memory) Replace(shard int, all []verdict.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replaced++
	before := maps.Clone(m.held)
	maps.DeleteFunc(m.held, func(key string, _ verdict.Verdict) bool { return m.shards[key] == shard })
	m.put(shard, all)
	for key := range before {
		if _, ok := m.held[key]; !ok && m.shards[key] == shard {
			m.dropped = append(m.dropped, key)
		}
	}
}

// Apply implements Sink.
func (m *Memory) Apply(shard int, changes []verdict.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(shard, changes)
}

func (m *Memory) put(shard int, changes []verdict.Verdict) {
	for _, v := range changes {
		key := string(verdict.AppendRecordKey(nil, &v))
		if held, ok := m.held[key]; ok && held.Seq > v.Seq {
			continue
		}
		m.shards[key] = shard
		if m.held[key] = v; v.State == verdict.Clear {
			delete(m.held, key)
		}
	}
}

// Remove implements Sink.
func (m *Memory) Remove(_ int, key []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, string(key))
}

// Heartbeat implements Sink.
func (m *Memory) Heartbeat(shard int, applied event.Micros) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied[shard] = applied
}

// Text lists the verdicts, as lines in order.
func (m *Memory) Text() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Text(m.held)
}

// Has reports whether it has this.
func (m *Memory) Has(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.held[key]
	return ok
}

// AppliedUpTo returns the time in the latest heartbeat of a shard.
func (m *Memory) AppliedUpTo(shard int) event.Micros {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied[shard]
}

// Text is verdicts by their record keys, as lines in order.
func Text(held map[string]verdict.Verdict) []string {
	lines := make([]string, 0, len(held))
	for key, v := range held {
		lines = append(lines, fmt.Sprintf("%s seq %d until %d", key, v.Seq, v.Until))
	}
	slices.SortFunc(lines, cmp.Compare[string])
	return lines
}

// Held returns the verdicts by record key.
func (m *Memory) Held() map[string]verdict.Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.held)
}

// Seq is that of the verdict with this record key; 0 when it holds none.
func (m *Memory) Seq(key string) int64 { return m.Held()[key].Seq }

// Replaced counts the snapshots that replaced its verdicts.
func (m *Memory) Replaced() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replaced
}

// Dropped lists the keys that snapshots took away.
func (m *Memory) Dropped() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.dropped)
}
