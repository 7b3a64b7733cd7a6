package enforce

import (
	"math/bits"
	"sync/atomic"
)

// view is what checks read. Its lists never change: a new chunk, rule or shape, or more buckets, make a new view. What changes
// in place are the buckets' slots, by the one writer.
//
// A key's record is found by an open-addressing index of buckets, two in a cache line. A bucket has six slots, for each an
// 8-bit tag of the key's hash and where its record is: a miss, which is what nearly all checks are, reads one cache line and no
// key, and a hit one more, that of its record.
//
// Readers take no lock. The writer keeps to this: a record never changes, and a slot gets another record by one atomic
// store; a slot is filled before its tag is set, and its tag is cleared before it is used again; a key never moves to another slot, but for
// other buckets, which are complete before they are published. So a reader never misses a key that is held throughout. What
// a slot refers to is in the view that was the table's when the slot was read: a reader that finds another one there now
// begins again. So memory and numbers can be used again, and a reader at work still has what it began with.
//
// A walk from bucket to bucket ends at one that is not flagged, of which the writer always leaves one, or when it has been to all: a
// reader must end whatever it meets, also in buckets that are the table's no more.
type view struct {
	buckets []bucket
	chunks  [][]byte // records; nil is a number that is free
	starts  []raw    // of the chunks
	classes []*class // by number; nil is free
	shapes  []*shape // by number; nil is free
}

// shapeUID is the number of the shape of uid alone, which is always there.
const shapeUID = 0

const (
	slotsPerBucket = 6
	bucketBytes    = 32
	minBuckets     = 8
	lowBytes       = 0x0000010101010101 // of a bucket's tags
	highBits       = 0x0000808080808080
	overflowed     = 1 << 63 // in a bucket's tags: keys that belong here went to the next one
)

type bucket struct {
	tags atomic.Uint64 // byte i is slot i's tag, 0 when it is empty; the highest bit is the flag
	refs [slotsPerBucket]atomic.Uint32
}

// shape is a list of dimensions that some keys have. A check looks for one key of each shape.
type shape struct {
	number  uint64
	names   []string // sorted
	salt    uint64
	entries int // how many keys there are; the writer's
}

// tagOf uses the hash's low bits, since bucketOf uses its high ones. It is never that of an empty slot, nor near it: see candidates.
func tagOf(hash uint64) uint64 { return hash&0xff | 0x80 }

// bucketOf needs no power of two, so an index need not be half empty after it grew.
func (v *view) bucketOf(hash uint64) uint64 {
	i, _ := bits.Mul64(hash, uint64(len(v.buckets)))
	return i
}

// candidates returns which slots of a bucket may have the tag that is repeated in tags: bit 8i+7 for slot i. The lowest is one
// that has it. One above it may be false: a slot whose tag differs in the lowest bit only, hence not an empty one, and the
// key tells.
func candidates(word, tags uint64) uint64 {
	diff := word ^ tags
	return (diff - lowBytes) &^ diff & highBits
}

func slotOf(candidates uint64) int { return bits.TrailingZeros64(candidates) >> 3 }

// find returns the record of the key of this shape that the query has; its key is nil when there is none. ok is false when v is
// not the table's view any more: begin again.
func (t *Table) find(v *view, s *shape, q *query) (r record, ok bool) {
	hash, ok := q.hash(s)
	if !ok {
		return record{}, true
	}
	tags := tagOf(hash) * lowBytes
	for i, left := v.bucketOf(hash), len(v.buckets); ; {
		b := &v.buckets[i]
		word := b.tags.Load()
		for m := candidates(word, tags); m != 0; m &= m - 1 {
			ref := b.refs[slotOf(m)].Load()
			if t.view.Load() != v {
				return record{}, false
			}
			if r = splitRecord(v.record(ref)); r.shape == s.number && q.is(r.key, s) {
				return r, true
			}
		}
		if left--; word&overflowed == 0 || left == 0 {
			return record{}, true
		}
		if i++; i == uint64(len(v.buckets)) {
			i = 0
		}
	}
}
