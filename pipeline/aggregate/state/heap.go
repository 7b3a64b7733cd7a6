package state

import (
	"encoding/binary"
	"math/bits"
)

// heap allocates chunks of a few dozen sizes, cut from slabs. A Ref is 6 bits of size class and 26
// bits of chunk number, from 1. A size with 2^26-1 chunks borrows from the next larger one: Refs of
// 8 bytes would take 4 more for each key of every table.
type heap struct {
	classes [64]class
	bytes   int64
	most    uint32 // chunks of a class
}

type class struct {
	slabs [][]byte
	shift uint8  // a slab has 1<<shift chunks, so that to find one takes no division
	next  uint32 // the first chunk number never used, less 1
	freed uint32 // the chunk number freed last, 0 if none: each has the one before it behind its generation
}

const (
	numberBits = 26
	mostChunks = 1<<numberBits - 1
	slabBytes  = 128 << 10 // at most, and more than half of it, unless a chunk is larger

	offFreed = 1 // in a freed chunk
	genFreed = 3 // its generation, which no change has
)

// sizes: 32 bytes, then steps of an eighth of the power of two below: at most 12.5% is waste
// beside what a block has grown or shrunk.
func classOf(n int) int {
	if n <= 64 {
		return max(0, (n+15)/16-2) // 32, 48, 64
	}
	shift := bits.Len(uint(n-1)) - 1 // 2^shift < n <= 2^(shift+1)
	step := 1 << shift / 4
	return 3 + (shift-6)*4 + (n-1-1<<shift)/step
}

func sizeOf(class int) int {
	if class < 3 {
		return (class + 2) * 16
	}
	shift := 6 + (class-3)/4
	return 1<<shift + ((class-3)%4+1)*(1<<shift/4)
}

func (h *heap) alloc(n int) (Ref, []byte) {
	k := classOf(n)
	for h.classes[k].full(h.most) {
		k++ // reaching the last class would take petabytes
	}
	c := &h.classes[k]
	size := sizeOf(k)
	if len(c.slabs) == 0 {
		c.shift = uint8(bits.Len(uint(max(1, slabBytes/size))) - 1)
	}
	var num uint32
	if c.freed != 0 {
		num = c.freed - 1
		c.freed = binary.LittleEndian.Uint32(h.chunk(Ref(uint32(k)<<numberBits | c.freed))[offFreed:])
		if c.freed != 0 { // the next allocation finds it in the cache
			prefetch(&h.chunk(Ref(uint32(k)<<numberBits | c.freed))[0], min(size, prefetchMost))
		}
	} else {
		num = c.next
		if int(num>>c.shift) == len(c.slabs) {
			slab := make([]byte, size<<c.shift)
			c.slabs = append(c.slabs, slab)
			h.bytes += int64(len(slab))
		}
		c.next++
	}
	ref := Ref(uint32(k)<<numberBits | (num + 1))
	return ref, h.chunk(ref)
}

func (c *class) full(most uint32) bool { return c.next >= most && c.freed == 0 }

func (h *heap) chunk(ref Ref) []byte {
	k := int(ref >> numberBits)
	num := uint32(ref)&(1<<numberBits-1) - 1
	c := &h.classes[k]
	size := sizeOf(k)
	off := int(num&(1<<c.shift-1)) * size
	return c.slabs[num>>c.shift][off : off+size : off+size]
}

func (h *heap) free(ref Ref) {
	c, chunk := &h.classes[ref>>numberBits], h.chunk(ref)
	num := uint32(ref)&(1<<numberBits-1) - 1
	chunk[offGen] = genFreed
	binary.LittleEndian.PutUint32(chunk[offFreed:], c.freed)
	c.freed = num + 1
}

// fits reports whether n bytes belong into ref's chunk. They do not if the block has shrunk so much
// that half the size would do.
func (h *heap) fits(ref Ref, n int) bool {
	size := sizeOf(int(ref >> numberBits))
	return n <= size && (n*2 > size || size <= 64)
}
