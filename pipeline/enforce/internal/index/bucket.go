package index

import (
	"iter"
	"math/bits"
	"sync/atomic"
)

const (
	slotsPerBucket = 6
	bucketBytes    = 32
	minBuckets     = 8
	lowBits        = 0x0000010101010101 // of a bucket's tags
	highBits       = 0x0000808080808080
	overflowed     = 1 << 63 // in a bucket's tags: keys that belong here went to the next one
)

// bucket has six slots, for each an 8-bit tag of the key's hash and where its record is. Two
// buckets fill a cache line.
type bucket struct {
	tags atomic.Uint64 // byte i is slot i's tag, 0 when it is empty; the highest bit is the flag overflowed
	refs [slotsPerBucket]atomic.Uint32
}

func (b *bucket) tag(slot int) uint64 { return b.tags.Load() >> (8 * slot) & 0xff }

func (b *bucket) setTag(slot int, tag uint64) {
	b.tags.Store(b.tags.Load()&^(0xff<<(8*slot)) | tag<<(8*slot))
}

// tagOf uses the hash's low bits, since place uses its high ones. It is never that of an empty
// slot, nor near it: see candidates.
func tagOf(hash uint64) uint64 { return hash&0xff | 0x80 }

// candidates returns which slots of a bucket may have the tag: bit 8i+7 for slot i. The lowest is
// one that has it. One above it may be false: a slot whose tag differs in the lowest bit only,
// hence not an empty one, and the key tells.
func candidates(word, tag uint64) uint64 {
	diff := word ^ tag*lowBits
	return (diff - lowBits) &^ diff & highBits
}

// slotOf returns the lowest of the candidates.
func slotOf(candidates uint64) int { return bits.TrailingZeros64(candidates) >> 3 }

// buckets are an open-addressing hash table. A key that finds its bucket full goes to the next one
// with room, and flags those that it passed: a flagged bucket stays so until the table is made
// anew. A walk ends at a bucket that is not flagged, of which the writer always leaves one, or when
// it has been to all: a reader must end whatever it meets.
type buckets []bucket

// bucketsFor returns how many buckets so many keys need to fill 60% of the slots.
func bucketsFor(entries int) int { return max(minBuckets, entries*5/(3*slotsPerBucket)+1) }

// flooded reports whether readers may have to walk far, with so many of n buckets flagged. Some, at
// least, are not.
func flooded(flagged, n int) bool { return 4*flagged > n+16 || flagged >= n }

// place returns the bucket that a key belongs to. It needs no power of two, so a table need not be
// half empty after it grew.
func (l buckets) place(hash uint64) uint64 {
	i, _ := bits.Mul64(hash, uint64(len(l)))
	return i
}

// insert adds a reference that is not there, and returns how many buckets overflowed with it. There
// must be room: it panics rather than look for it for ever.
func (l buckets) insert(hash uint64, ref uint32) (flagged int) {
	for i, left := l.place(hash), len(l); left > 0; i, left = (i+1)%uint64(len(l)), left-1 {
		b := &l[i]
		for j := range b.refs {
			if b.tag(j) == 0 {
				b.refs[j].Store(ref)
				b.setTag(j, tagOf(hash))
				return flagged
			}
		}
		if word := b.tags.Load(); word&overflowed == 0 {
			b.tags.Store(word | overflowed)
			flagged++
		}
	}
	panic("index: no room among buckets that were made to have room")
}

// slots yields the slots that have the hash's tag.
func (l buckets) slots(hash uint64) iter.Seq2[*bucket, int] {
	return func(yield func(*bucket, int) bool) {
		tag := tagOf(hash)
		for i, n := l.place(hash), 0; n < len(l); i, n = (i+1)%uint64(len(l)), n+1 {
			b := &l[i]
			for j := range b.refs {
				if b.tag(j) == tag && !yield(b, j) {
					return
				}
			}
			if b.tags.Load()&overflowed == 0 {
				return
			}
		}
	}
}

// refs yields all references that are held.
func (l buckets) refs() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i := range l {
			for j := range l[i].refs {
				if l[i].tag(j) != 0 && !yield(l[i].refs[j].Load()) {
					return
				}
			}
		}
	}
}
