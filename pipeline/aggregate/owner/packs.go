package owner

import (
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
)

// Forwarding bounds what an instance's partitions have forwarded, and Kafka has not acknowledged. A partition
// of the repartition topic that takes nothing for a while must not stop those that read events for others:
// so much may wait for it that this takes long.
type Forwarding struct {
	all   int64 // bytes, of all; above, only each is left to each
	most  int64 // of one that waits for another
	each  int64
	bytes atomic.Int64 // that wait now
}

// NewForwarding returns a bound of so many bytes for an instance. From one partition for another one, a
// quarter of them may wait, and in any case a sixty-fourth.
func NewForwarding(bytes int64) *Forwarding {
	return &Forwarding{all: bytes, most: bytes / 4, each: bytes / 64}
}

// loop is the way to another partition of the repartition topic.
type loop struct {
	*fenced.Writer
	all   *Forwarding
	some  chan struct{} // see packs
	bytes atomic.Int64  // that wait
	packs atomic.Int32  // that are not acknowledged
}

// waits notes a record that waits for Kafka, and returns what is to be called when it does so no more. It
// reports whether too much waits for another one. The partition is locked.
func (l *loop) waits(size int64, pack bool) (done fenced.Done, over bool) {
	all, own := l.all.bytes.Add(size), l.bytes.Add(size)
	if pack {
		l.packs.Add(1)
	}
	return func(int64, time.Time, error) {
		l.all.bytes.Add(-size)
		l.bytes.Add(-size)
		if pack {
			l.packs.Add(-1)
			ring(l.some)
		}
	}, own > l.all.each && (own > l.all.most || all > l.all.all)
}

// forget takes off what waits still. The writer has ended.
func (l *loop) forget() { l.all.bytes.Add(-l.bytes.Swap(0)) }

// packs forwards what the shard has packed for other partitions. While a pack is on its way to a partition,
// what follows is gathered in the next one: it grows just as the append takes, and waits for nothing else.
type packs struct {
	*core
	out  *outbox
	some chan struct{} // holds one after a pack was acknowledged
}

// forward asks for all packs to be forwarded that wait for no other one. The partition is locked.
func (p *packs) forward() {
	if p.shard.PacksWait() {
		p.shard.FlushPacks(p.out.packing)
	}
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
