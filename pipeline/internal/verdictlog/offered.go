package verdictlog

import "sync"

// Offered holds records that the owner of a partition has handed over and the publisher has not applied yet: all of
// the offsets [first, next), which is one run without a gap. It is bounded: when it would grow over its limit, or
// there is a gap before what comes, what it has is dropped, and the topic is read instead. Make it with NewOffered.
type Offered[R any] struct {
	// Wake has a value after something was offered.
	Wake chan struct{}

	offset func(*R) int64
	size   func(*R) int // about how many bytes a record takes

	mu          sync.Mutex
	first, next int64
	records     []R
	bytes       int
	dropped     uint64 // records that were dropped
}

// NewOffered returns one that holds nothing: its run begins at an offset. offset and size tell a
// record's offset, and about how many bytes it takes.
func NewOffered[R any](begin int64, offset func(*R) int64, size func(*R) int) *Offered[R] {
	return &Offered[R]{Wake: make(chan struct{}, 1), offset: offset, size: size, first: begin, next: begin}
}

// Add takes what was offered: all records of the offsets [first, next).
func (o *Offered[R]) Add(first, next int64, records []R, limit int) {
	size := 0
	for i := range records {
		size += o.size(&records[i])
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
	case o.Wake <- struct{}{}:
	default:
	}
}

// drop forgets what is held; the run begins anew at first.
func (o *Offered[R]) drop(first int64) {
	o.dropped += uint64(len(o.records))
	o.first, o.records, o.bytes = first, nil, 0
}

// Take hands out what was offered from reached on. When first is greater than reached, the offsets
// between must be read from the topic first, and nothing was taken.
func (o *Offered[R]) Take(reached int64) (first, next int64, records []R) {
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
	for len(records) > 0 && o.offset(&records[0]) < reached {
		records = records[1:]
	}
	return reached, next, records
}

// Dropped counts records that were dropped, to be read from the topic.
func (o *Offered[R]) Dropped() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}

// Pass forgets what is held: nobody will take what was offered before an offset.
func (o *Offered[R]) Pass(next int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if next > o.next {
		o.first, o.next, o.records, o.bytes = next, next, nil, 0
	}
}

// Next is the offset behind all that was offered.
func (o *Offered[R]) Next() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next
}
