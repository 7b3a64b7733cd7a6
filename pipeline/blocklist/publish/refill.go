package publish

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// refill keeps the last record of each key.
type refill struct {
	last map[string]Record
	// Redis holds nothing of this partition: removals, and what ran out, can be left out.
	empty  bool
	before event.Micros // what ended before this moment ran out
}

func newRefill(empty bool, before event.Micros) *refill {
	// An hour more than the grace, since Redis' clock decides, not this one.
	return &refill{last: map[string]Record{}, empty: empty, before: before - event.Hour}
}

func (f *refill) add(records []Record) {
	for _, r := range records {
		if f.empty && f.over(r) {
			delete(f.last, string(r.Key))
			continue
		}
		f.last[string(r.Key)] = r
	}
}

func (f *refill) over(r Record) bool {
	if len(r.Value) == 0 {
		return true
	}
	v, err := verdict.Parse(r.Value)
	return err == nil && v.Until < f.before
}

// records returns what is left in the order of offsets.
func (f *refill) records() []Record {
	return slices.SortedFunc(maps.Values(f.last), func(a, b Record) int { return cmp.Compare(a.Offset, b.Offset) })
}

// refills tells, once for all partitions, that Redis has less than it had, and that it has all
// again.
type refills struct {
	log *slog.Logger

	mu      sync.Mutex
	running map[int32]bool // partitions
	records int            // written again since the first of them began
	since   time.Time
	count   uint64
}

// began notes that Redis, which had a partition up to an offset, has less of it now.
func (r *refills) began(partition int32, had, reached int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[partition] {
		return
	}
	r.count++
	if len(r.running) == 0 {
		r.running, r.records, r.since = map[int32]bool{}, 0, time.Now()
		r.log.Warn("the blocklist in Redis lost its contents (a flush, restore, failover or restart); refilling it from the verdict topic",
			"partition", partition, "offset_before", had, "offset", reached)
	}
	r.running[partition] = true
}

func (r *refills) ended(partition int32, records int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running[partition] {
		return
	}
	r.records += records
	if delete(r.running, partition); len(r.running) == 0 {
		r.log.Info("the blocklist in Redis is refilled", "verdicts", r.records, "took_seconds", time.Since(r.since).Seconds())
	}
}

// gone forgets a partition that has another owner now.
func (r *refills) gone(partition int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, partition)
}

func (r *refills) total() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}
