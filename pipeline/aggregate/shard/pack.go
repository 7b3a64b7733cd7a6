package shard

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/wire"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/rules"
)

// A key of one value, such as the address of a large office, gets events from all partitions. Forwarded one
// by one, each would be a record, decoded and matched once more. So a partition packs what it forwards: an
// event is decoded and matched where it is read, and its pack says what it counts on the keys of one other
// partition. Each entry has its own origin, so a receiver drops exactly what it has seen, whatever another
// owner's packs begin and end with.
//
// A pack is a record of the loop topic: version, kind 5, and
//
//	uvarint   the origins' generation; 0 is none
//	uvarint   their partition
//	uvarint   the version of the rules
//	entries   up to the record's end
//
// An entry is an event:
//
//	uvarint   its offset, less that of the entry before
//	uvarint   its index in the record
//	varint    its broker time, less that of the entry before
//	varint    its time, less its broker time
//	bytes     its id; none is empty
//	uvarint   how many keys; each:
//	  uvarint   the number of a key of this pack; 0 is a new one, which gets the next number:
//	              uvarint   the number of a list of limits, from 1; 0 is a new one: uvarint length, 6 bytes of each limit
//	              bytes     the key's text
//	  uvarint   0: each limit counts 1; 1: uvarint amounts, in millionths; 2: amounts, then 8 bytes of each hit's value
//
// A header names the version with the life of the rules topic that it is of (protocol.RulesVersion).
const loopKindPack = 5

// HeaderRules is the name of a pack's header: 8 bytes, the version of the rules that it was made by.
const HeaderRules = "tg-v"

const (
	packItems = 256      // as many entries are in a pack at most: its receiver steps them in one go
	packBytes = 16 << 10 // behind the entry that reaches it, a pack ends
	packSlots = 256      // of keys that are found again
)

// The forms of an entry's amounts.
const (
	amountsOne    = 0
	amountsGiven  = 1
	amountsValues = 2
)

// Packs gathers what is to be forwarded.
type Packs struct {
	by    *Config
	asks  *Effects
	packs bool         // all instances read packs
	known Rules        // that events are matched by
	from  event.Micros // by this machine's clock: see Config.PackAfter
	now   bool         // packs, and from is over
	of    []*pack      // by partition, those that have entries
	open  int          // how many these are
	bytes int64        // of these
	spare []*pack      // to use again
}

// sparePacks is the number of packs that keep their memory: most partitions forward to few others at a time.
const sparePacks = 4

// pack gathers forwards to one partition.
type pack struct {
	value  []byte
	items  int
	offset int64        // of the last entry
	broker event.Micros // the same
	sets   [][]rules.Hit
	keys   []packKey
	slots  [packSlots]uint16 // numbers of keys, by a part of their hash
}

// packKey is a key of a pack: its text in the value, and the number of its limits.
type packKey struct{ set, begin, end int }

// Use lets the shard pack what it forwards, or not. All who own partitions must read packs.
func (ps *Packs) Use(on bool) { ps.packs = on }

// Waiting reports whether there are packs that Flush would ask to be forwarded.
func (ps *Packs) Waiting() bool { return ps.open > 0 }

// Bytes counts the bytes that wait in packs.
func (ps *Packs) Bytes() int64 { return ps.bytes }

// Flush asks for what waits to be forwarded, but for partitions that are busy; nil: for all.
func (ps *Packs) Flush(busy func(to int32) bool) {
	if ps.open == 0 {
		return
	}
	for to := range int32(len(ps.of)) {
		if ps.of[to] != nil && (busy == nil || !busy(to)) {
			ps.flush(to)
		}
	}
}

// flush asks for a partition's pack to be forwarded, if it has entries.
func (ps *Packs) flush(to int32) {
	if ps.of == nil || ps.of[to] == nil {
		return
	}
	p := ps.of[to]
	ps.asks.Forwards = append(ps.asks.Forwards, Forward{To: to, Value: bytes.Clone(p.value), Events: p.items, Packed: true, Rules: ps.known.Published})
	ps.of[to] = nil
	ps.open--
	ps.bytes -= int64(len(p.value))
	if len(ps.spare) < sparePacks {
		ps.spare = append(ps.spare, p)
	}
}

// look is before each record.
func (ps *Packs) look(r *Rules, clock Clock) {
	if *r != ps.known {
		ps.Flush(nil)
		ps.known, ps.from = *r, clock.Local+ps.by.PackAfter
	}
	ps.now = ps.packs && clock.Local >= ps.from
}

// pack adds what an event counts on the keys of another partition to its pack. It reports false when only
// the whole event tells that.
func (ps *Packs) pack(to int32, o *occurrence, works []rules.Work, generation uint32) bool {
	if !ps.now || o.trace != nil || o.event.Permit.ID != "" {
		return false
	}
	keys, size := 0, len(o.id)
	for i := range works {
		if ps.by.owner(&works[i]) != to {
			continue
		}
		keys++
		size += len(works[i].Key)
		for j := range works[i].Hits {
			if !works[i].Hits[j].IsPlain() {
				return false
			}
		}
	}
	if size > packBytes {
		return false
	}
	p := ps.begun(to, generation)
	before := len(p.value)
	p.addEvent(o, keys)
	for i := range works {
		if w := &works[i]; ps.by.owner(w) == to {
			p.addKey(w)
		}
	}
	ps.bytes += int64(len(p.value) - before)
	if p.items++; p.items >= packItems || len(p.value) >= packBytes {
		ps.flush(to)
	}
	return true
}

// begun is the pack for a partition.
func (ps *Packs) begun(to int32, generation uint32) *pack {
	if ps.of == nil {
		ps.of = make([]*pack, ps.by.Of)
	}
	p := ps.of[to]
	if p == nil {
		p = &pack{}
		if n := len(ps.spare); n > 0 {
			p, ps.spare = ps.spare[n-1], ps.spare[:n-1]
		}
		p.begin(origin{partition: ps.by.ID, generation: generation}, ps.known.Number)
		ps.of[to] = p
		ps.open++
		ps.bytes += int64(len(p.value))
	}
	return p
}

func (p *pack) begin(from origin, version int64) {
	value := p.value[:0]
	value = append(value, loopVersion, loopKindPack)
	value = binary.AppendUvarint(value, uint64(from.generation))
	value = binary.AppendUvarint(value, uint64(from.partition))
	value = binary.AppendUvarint(value, uint64(version))
	*p = pack{value: value, sets: p.sets[:0], keys: p.keys[:0]}
}

func (p *pack) addEvent(o *occurrence, keys int) {
	offset := o.place.next - 1
	p.value = binary.AppendUvarint(p.value, uint64(offset-p.offset))
	p.value = binary.AppendUvarint(p.value, uint64(o.place.index))
	p.value = binary.AppendVarint(p.value, int64(o.broker-p.broker))
	p.value = binary.AppendVarint(p.value, int64(o.at-o.broker))
	p.value = binary.AppendUvarint(p.value, uint64(len(o.id)))
	p.value = append(p.value, o.id...)
	p.value = binary.AppendUvarint(p.value, uint64(keys))
	p.offset, p.broker = offset, o.broker
}

func (p *pack) addKey(w *rules.Work) {
	slot := &p.slots[state.Hash(w.Key)%packSlots]
	if n := int(*slot); n > 0 && p.isKey(&p.keys[n-1], w) {
		p.value = binary.AppendUvarint(p.value, uint64(n))
	} else {
		p.value = binary.AppendUvarint(p.value, 0)
		set := p.addSet(w.Hits)
		p.value = wire.AppendBytes(p.value, w.Key)
		p.keys = append(p.keys, packKey{set, len(p.value) - len(w.Key), len(p.value)})
		*slot = uint16(len(p.keys)) // a pack has few keys: each takes several of its bytes
	}
	form := amountsOne
	for i := range w.Hits {
		switch h := &w.Hits[i]; {
		case h.Value != 0:
			form = amountsValues
		case h.Amount != event.One:
			form = max(form, amountsGiven)
		}
	}
	p.value = binary.AppendUvarint(p.value, uint64(form))
	if form != amountsOne {
		for i := range w.Hits {
			p.value = binary.AppendUvarint(p.value, uint64(w.Hits[i].Amount))
		}
	}
	if form == amountsValues {
		for i := range w.Hits {
			p.value = binary.LittleEndian.AppendUint64(p.value, w.Hits[i].Value)
		}
	}
}

func (p *pack) isKey(k *packKey, w *rules.Work) bool {
	return bytes.Equal(p.value[k.begin:k.end], w.Key) && sameLimits(p.sets[k.set], w.Hits)
}

func sameLimits(a, b []rules.Hit) bool {
	return slices.EqualFunc(a, b, func(x, y rules.Hit) bool { return x.Limit == y.Limit })
}

// addSet adds the number of a list of limits, and the list if it is new.
func (p *pack) addSet(hits []rules.Hit) (set int) {
	for i := range p.sets {
		if sameLimits(p.sets[i], hits) {
			p.value = binary.AppendUvarint(p.value, uint64(i+1))
			return i
		}
	}
	p.value = binary.AppendUvarint(p.value, 0)
	p.value = binary.AppendUvarint(p.value, uint64(len(hits)))
	for i := range hits {
		p.value = append(p.value, hits[i].Limit.Hash[:]...)
	}
	p.sets = append(p.sets, slices.Clone(hits))
	return len(p.sets) - 1
}
