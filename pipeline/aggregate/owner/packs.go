package owner

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
)

// Forwarding bounds what an instance's partitions have packed or forwarded, and Kafka has not acknowledged. A
// partition of the repartition topic that takes nothing for a while must not stop those that read events for
// others: of half of the bound, each partition has its part. The other half is shared. Of it, as much may wait for one
// partition as is still free: one that is stuck gets half of it, two get a third each, and something is left for the
// next.
type Forwarding struct {
	budget *budget.Budget
	to     []atomic.Int64 // bytes that wait, by partition
	own    int64          // the part of each partition
	shared atomic.Int64   // what waits beyond these

	waiting atomic.Int32 // how many wait for room
	mu      sync.Mutex
	room    chan struct{} // closed when less waits; nil while nobody looks
}

// NewForwarding returns a bound for so many partitions.
func NewForwarding(b *budget.Budget, partitions int32) *Forwarding {
	return &Forwarding{budget: b, to: make([]atomic.Int64, partitions), own: b.ForwardsLimit() / 2 / int64(partitions)}
}

// forwarded notes bytes that are on their way to a partition, or no more if they are negative.
func (f *Forwarding) forwarded(to int32, bytes int64) {
	now := f.to[to].Add(bytes)
	f.shared.Add(f.beyond(now) - f.beyond(now-bytes))
	f.add(budget.Forwards, bytes)
}

// beyond returns the shared part of a partition's waiting bytes.
func (f *Forwarding) beyond(bytes int64) int64 { return max(0, bytes-f.own) }

func (f *Forwarding) add(kind budget.Kind, bytes int64) {
	f.budget.Add(kind, bytes)
	if bytes >= 0 || f.waiting.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.room != nil {
		close(f.room)
		f.room = nil
	}
}

// free returns the room left in the shared part.
func (f *Forwarding) free() int64 { return max(0, f.budget.ForwardsLimit()/2-f.shared.Load()) }

// full reports whether as much waits as may wait in all.
func (f *Forwarding) full() bool {
	return f.budget.Held(budget.Packs)+f.budget.Held(budget.Forwards) >= f.budget.ForwardsLimit()
}

// over reports whether too much waits for a partition.
func (f *Forwarding) over(to int32) bool { return f.beyond(f.to[to].Load()) > f.free() }

// ready reports whether more may be forwarded, after too much has waited for these partitions: some more than
// nothing, or each acknowledgement would let just as much in.
func (f *Forwarding) ready(to []int32) bool {
	free := f.free()
	return !f.full() && !slices.ContainsFunc(to, func(to int32) bool { return f.beyond(f.to[to].Load()) > free/2 })
}

// awaitRoom waits until more may be forwarded. It returns false if ctx ends first.
func (f *Forwarding) awaitRoom(ctx context.Context, to []int32) bool {
	f.waiting.Add(1)
	defer f.waiting.Add(-1)
	for {
		f.mu.Lock()
		if f.room == nil {
			f.room = make(chan struct{})
		}
		room := f.room
		f.mu.Unlock()
		if f.ready(to) {
			return true
		}
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

// loop is the way to another partition of the repartition topic.
type loop struct {
	Writer
	to    int32
	all   *Forwarding
	some  chan struct{} // see packs
	bytes atomic.Int64  // that wait
	packs atomic.Int32  // that are not acknowledged
}

// waits notes a record that waits for Kafka, and returns what is to be called when it does so no more. The
// partition is locked.
func (l *loop) waits(size int64, pack bool) (done fenced.Done) {
	l.bytes.Add(size)
	l.all.forwarded(l.to, size)
	if pack {
		l.packs.Add(1)
	}
	return func(int64, time.Time, error) {
		l.bytes.Add(-size)
		l.all.forwarded(l.to, -size)
		if pack {
			l.packs.Add(-1)
			ring(l.some)
		}
	}
}

// forget takes off what waits still. The writer has ended.
func (l *loop) forget() { l.all.forwarded(l.to, -l.bytes.Swap(0)) }

// packs forwards what the shard has packed for other partitions. While a pack is on its way to a partition,
// what follows is gathered in the next one: it grows just as the append takes, and waits for nothing else.
type packs struct {
	*core
	out  *outbox
	some chan struct{} // holds one after a pack was acknowledged
	held int64         // bytes of packs that the budget knows of; under mu
}

// note tells the budget how much is packed. The partition is locked.
func (p *packs) note(packed int64) {
	if packed != p.held {
		p.env.Forwarding.add(budget.Packs, packed-p.held)
		p.held = packed
	}
}

// forward asks for all packs to be forwarded that wait for no other one. The partition is locked.
func (p *packs) forward() {
	if p.shard.Packs().Waiting() {
		p.shard.Packs().Flush(p.out.packing)
	}
	p.note(p.shard.Packs().Bytes())
}

// run forwards what was gathered while a pack was on its way.
func (p *packs) run() error {
	for awaited(p.core, p.some) {
		p.lock()
		p.forward()
		err := p.out.perform()
		p.mu.Unlock()
		if err != nil {
			return p.ended(err)
		}
	}
	return nil
}
