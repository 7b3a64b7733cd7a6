package enforce

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
)

// Denials chooses which denied requests a middleware emits events of. Rules do not count these, but they tell the
// rules what a key's limits are now: who is blocked, and buys a larger plan, could otherwise never say so. A request
// that says something new is emitted at once, one that repeats what was said every five seconds. A flood of them is
// bounded, in events and in memory. Many goroutines may use it.
type Denials struct {
	seed  maphash.Seed
	began time.Time
	slots [denialSlots]atomic.Uint64 // who was emitted last: half a hash, and when, in ticks from 1
}

const (
	denialSlots = 256
	denialWays  = 8 // slots that one hash may take, so that few callers never wait for each other
	denialTick  = 100 * time.Millisecond

	denialEvery = 50 // ticks: between two events of one API and dimensions
	denialApart = 10 // ticks: between two events of others that take one slot after the other
)

// NewDenials has seen no request.
func NewDenials() *Denials { return &Denials{seed: maphash.MakeSeed(), began: time.Now()} }

// Emits reports whether a denied request to an API is to be emitted. The order of dims means nothing.
func (d *Denials) Emits(api string, dims []event.Dim) bool {
	who := maphash.String(d.seed, api)
	for i := range dims {
		var one maphash.Hash
		one.SetSeed(d.seed)
		one.WriteString(dims[i].Name)
		one.WriteByte(0)
		one.WriteString(dims[i].Value)
		who += one.Sum64()
	}
	now := uint32(time.Since(d.began)/denialTick) + 1
	first := who % (denialSlots / denialWays) * denialWays
	slot, was, apart := (*atomic.Uint64)(nil), uint64(0), uint32(denialApart)
	for i := range d.slots[first : first+denialWays] {
		way := &d.slots[first+uint64(i)]
		said := way.Load()
		if said != 0 && said>>32 == who>>32 {
			slot, was, apart = way, said, denialEvery
			break
		}
		if slot == nil || uint32(said) < uint32(was) {
			slot, was = way, said
		}
	}
	if was != 0 && now-uint32(was) < apart {
		return false
	}
	return slot.CompareAndSwap(was, who>>32<<32|uint64(now)) // else another one is emitted
}
