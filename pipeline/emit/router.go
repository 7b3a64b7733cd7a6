package emit

import (
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
)

// router finds an event's lane. Until the partitions are known events wait in one lane of
// their own, with their keys, and are spread over the others in the order they came.
type router struct {
	perRecord int
	lanes     atomic.Pointer[[]*lane]
	turn      atomic.Uint32
	unrouted  lane
}

// route reports whether the sender should look.
func (r *router) route(i *item) (look bool) {
	if lanes := r.lanes.Load(); lanes != nil {
		return r.pick(*lanes, i.key, i.position).add(i)
	}
	r.unrouted.mu.Lock()
	defer r.unrouted.mu.Unlock()
	if lanes := r.lanes.Load(); lanes != nil {
		return r.pick(*lanes, i.key, i.position).add(i)
	}
	return r.unrouted.addLocked(i)
}

// pick returns the lane of a key. Events without a key take turns; those with a position go where they
// went before, because each partition knows only what it has had.
func (r *router) pick(lanes []*lane, key []byte, position uint64) *lane {
	switch {
	case len(key) > 0:
	case position > 0:
		var at [8]byte
		key = event.AppendSequence(at[:0], position)
	default:
		return lanes[r.turn.Add(1)%uint32(len(lanes))]
	}
	return lanes[event.Partition(key, int32(len(lanes)))]
}

// publish opens the lanes to Emit, one for each partition that the topic has.
func (r *router) publish(lanes []*lane) {
	if r.lanes.Load() == nil {
		r.spread(lanes)
		return
	}
	r.lanes.Store(&lanes)
}

// spread moves what waited for the partitions into their lanes, then opens these to Emit. The
// bulk is moved while Emit goes on adding to the unrouted lane; only the rest, one batch at
// most, is moved under its lock, so that no event overtakes an older one of its key.
func (r *router) spread(lanes []*lane) {
	for {
		b := r.unrouted.take(false)
		if b == nil {
			break
		}
		r.move(b, lanes)
	}
	r.unrouted.mu.Lock()
	defer r.unrouted.mu.Unlock()
	for _, b := range r.unrouted.full { // filled since
		r.move(b, lanes)
	}
	if r.unrouted.open != nil {
		r.move(r.unrouted.open, lanes)
	}
	r.unrouted.full, r.unrouted.open = nil, nil
	r.unrouted.fill.Store(int32(empty))
	r.lanes.Store(&lanes)
}

func (r *router) move(b *batch, lanes []*lane) {
	for n := range b.records {
		rec := &b.records[n]
		i := item{key: b.data[rec.start:rec.value], value: b.data[rec.value:rec.end], trace: b.traceOf(rec), position: rec.sequence}
		i.cost = i.bytes()
		r.pick(lanes, i.key, rec.sequence).add(&i)
	}
	b.release()
}
