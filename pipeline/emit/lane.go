package emit

import (
	"sync"
	"sync/atomic"
)

// fill is a lane's length, as the sender sees it without taking the lane's lock.
type fill int32

const (
	empty fill = iota
	some       // the batch being filled has events
	full       // and there is at least one full batch
)

// lane holds what waits for one partition, oldest first: full batches, then the one being
// filled. Emit's callers add, the sender takes. Its lock is held for a copy of one event.
type lane struct {
	perRecord int

	mu   sync.Mutex
	full []*batch
	open *batch
	fill atomic.Int32
}

// item is an encoded event on its way into a lane, which copies it.
type item struct {
	key, value []byte
	trace      []byte // a traceparent; empty for none
	cost       int64  // as reserved from the queue's budget
	position   uint64 // 0 for none
}

// bytes is an item's share of the queue's bound.
func (i *item) bytes() int64 {
	n := len(i.key) + len(i.value) + recordOverhead
	if len(i.trace) > 0 {
		n += len(i.trace) + traceOverhead
	}
	return int64(n)
}

// add reports whether the sender should look: there was nothing before, or a batch is full.
func (l *lane) add(i *item) (look bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addLocked(i)
}

func (l *lane) addLocked(i *item) (look bool) {
	switch {
	case l.open == nil:
		l.open = batches.Get().(*batch)
		if len(l.full) == 0 {
			l.fill.Store(int32(some))
			look = true
		}
	case !l.open.room(len(i.key), len(i.value)+len(i.trace), l.perRecord):
		l.open.seal(l.perRecord)
		l.full = append(l.full, l.open)
		l.open = batches.Get().(*batch)
		l.fill.Store(int32(full))
		look = true
	}
	l.open.add(i, l.perRecord)
	return look
}

// take removes the oldest batch; the one being filled counts as a batch only if partial.
func (l *lane) take(partial bool) *batch {
	if l.level() == empty {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var b *batch
	switch {
	case len(l.full) > 0:
		b = l.full[0]
		l.full[0] = nil
		l.full = l.full[1:]
	case partial && l.open != nil:
		b, l.open = l.open, nil
		b.seal(l.perRecord)
	}
	switch {
	case len(l.full) > 0:
		l.fill.Store(int32(full))
	case l.open != nil:
		l.fill.Store(int32(some))
	default:
		l.fill.Store(int32(empty))
	}
	return b
}

func (l *lane) level() fill { return fill(l.fill.Load()) }
