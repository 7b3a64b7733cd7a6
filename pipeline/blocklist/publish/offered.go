package publish

import "sync"

// offered is what the owner of a partition has handed over and the publisher has not applied yet:
// all records of the offsets [first, next), which is one run without a gap. It is bounded: when it
// would grow over its limit, or there is a gap before what comes, what it has is dropped, and the
// topic is read instead.
type offered struct {
	mu          sync.Mutex
	first, next int64
	records     []Record
	bytes       int
	dropped     uint64 // records that were dropped
	wake        chan struct{}
}

func newOffered() *offered { return &offered{wake: make(chan struct{}, 1)} }

// recordOverhead is about what a Record costs beside its bytes.
const recordOverhead = 64

func (o *offered) add(first, next int64, records []Record, limit int) {
	size := 0
	for _, r := range records {
		size += len(r.Key) + len(r.Value) + recordOverhead
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if next <= o.next {
		return // offered before
	}
	if first != o.next {
		o.drop(first)
	}
	if o.bytes+size > limit {
		o.dropped += uint64(len(records))
		o.drop(next)
	} else {
		o.records = append(o.records, records...)
		o.bytes += size
	}
	o.next = next
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// drop forgets what is held; the run begins anew at first.
func (o *offered) drop(first int64) {
	o.dropped += uint64(len(o.records))
	o.first, o.records, o.bytes = first, nil, 0
}

// take hands out what was offered from reached on. When first is greater than reached, the offsets
// between must be read from the topic first, and nothing was taken.
func (o *offered) take(reached int64) (first, next int64, records []Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.next <= reached {
		o.first, o.next, o.records, o.bytes = reached, max(o.next, reached), nil, 0
		return reached, reached, nil
	}
	if o.first > reached {
		return o.first, o.next, nil
	}
	records, next = o.records, o.next
	o.first, o.records, o.bytes = o.next, nil, 0
	for len(records) > 0 && records[0].Offset < reached {
		records = records[1:]
	}
	return reached, next, records
}

func (o *offered) lost() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}
