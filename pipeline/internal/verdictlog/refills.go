package verdictlog

import (
	"log/slog"
	"sync"
	"time"
)

// Refills tells, once for all partitions, that Redis has less than it had, and that it has all
// again.
type Refills struct {
	Log  *slog.Logger
	What string                                // has lost its contents: "the blocklist"
	Done func(records int, took time.Duration) // logs that all is there again

	mu      sync.Mutex
	running map[int32]bool // partitions
	records int            // written again since the first of them began
	since   time.Time
	count   uint64
}

// Began notes that Redis, which had a partition up to an offset, has less of it now.
func (r *Refills) Began(partition int32, had, reached int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[partition] {
		return
	}
	r.count++
	if len(r.running) == 0 {
		r.running, r.records, r.since = map[int32]bool{}, 0, time.Now()
		r.Log.Warn(r.What+" in Redis lost its contents (a flush, restore, failover or restart); refilling it from the verdict topic",
			"partition", partition, "offset_before", had, "offset", reached)
	}
	r.running[partition] = true
}

// Ended notes that a partition is there again, with so many records.
func (r *Refills) Ended(partition int32, records int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running[partition] {
		return
	}
	r.records += records
	if delete(r.running, partition); len(r.running) == 0 {
		r.Done(r.records, time.Since(r.since))
	}
}

// Gone forgets a partition that has another owner now.
func (r *Refills) Gone(partition int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, partition)
}

// Total counts the refills of partitions.
func (r *Refills) Total() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}
