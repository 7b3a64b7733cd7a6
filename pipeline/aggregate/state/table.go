// Package state holds the blocks of a partition's keys in memory: one contiguous run of bytes per
// key, in slabs, found through an open-addressing index. The garbage collector sees a few large
// byte slices, whatever the number of keys.
//
// A Table also tracks which blocks have changed since they were last copied, so that a checkpoint
// costs as much as has changed. It is not safe for concurrent use.
package state

import (
	"bytes"
	"encoding/binary"
	"iter"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// The index is split into sub-tables by the hash's highest bits. Each grows by itself, so that no
// insertion pays for rehashing a million keys at once.
const (
	subBits   = 6
	subTables = 1 << subBits
	minSlots  = 16
)

// Ref names a key's chunk. It is valid until the key is stored again or deleted.
type Ref uint32

// slot is one place of the index: the hash's low 32 bits and the chunk. Ref 0 is free.
type slot struct {
	hash uint32
	ref  Ref
}

type subTable struct {
	slots []slot // a power of two
	used  int
}

// Table maps keys to blocks. The zero value is not usable; call New.
type Table struct {
	subs   [subTables]subTable
	heap   heap
	len    int
	gen    uint8      // the generation that new changes belong to: 1 or 2
	dirty  [3]refList // by generation; index 0 is unused
	spare  refBlocks  // for the lists of changes
	cursor sweepPlace // where the next Sweep continues
}

type sweepPlace struct{ sub, slot int }

// New returns an empty table.
func New() *Table { return &Table{gen: 1, heap: heap{most: mostChunks}} }

// Len is the number of keys.
func (t *Table) Len() int { return t.len }

// Bytes is the memory of the blocks' slabs and the index.
func (t *Table) Bytes() int64 {
	n := t.heap.bytes
	for i := range t.subs {
		n += int64(len(t.subs[i].slots)) * 8
	}
	return n
}

// Hash is the hash that keys are found by.
func Hash(key []byte) uint64 { return xxhash.Sum64(key) }

// Get returns the key's chunk.
func (t *Table) Get(key []byte) (Ref, bool) { return t.Find(Hash(key), key) }

// Find is Get for a key whose Hash is known.
func (t *Table) Find(hash uint64, key []byte) (Ref, bool) {
	sub, i, ok := t.find(hash, key)
	if !ok {
		return 0, false
	}
	return sub.slots[i].ref, true
}

// prefetchMost bounds the part of a chunk that is asked for ahead. Keys that have more are mostly those of many
// events, which are in the processor's cache anyway.
const prefetchMost = 512

// Expect says that the key of a hash is going to be asked for. See Warm.
func (t *Table) Expect(hash uint64) {
	sub := &t.subs[hash>>(64-subBits)]
	if len(sub.slots) > 0 {
		prefetch((*byte)(unsafe.Pointer(&sub.slots[int(uint32(hash))&(len(sub.slots)-1)])), 1)
	}
}

// Warm asks for what is stored under each of the hashes, so that it is in the processor's cache when it is needed.
// It affects only time: one after the other, each key would wait for memory several times, for the
// index and for each part of its chunk. Here the waits overlap, with one another and with other work. The index is
// read at once: Expect has asked for it.
func (t *Table) Warm(hashes []uint64) {
	for _, hash := range hashes {
		if ref := t.guess(hash); ref != 0 {
			c := t.heap.chunk(ref)
			prefetch(&c[0], min(len(c), prefetchMost))
		}
	}
}

// guess is the chunk that most likely belongs to the hash. It does not compare keys.
func (t *Table) guess(hash uint64) Ref {
	sub := &t.subs[hash>>(64-subBits)]
	if len(sub.slots) == 0 {
		return 0
	}
	mask := len(sub.slots) - 1
	for i := int(uint32(hash)) & mask; ; i = (i + 1) & mask {
		if s := sub.slots[i]; s.ref == 0 || s.hash == uint32(hash) {
			return s.ref
		}
	}
}

// Block returns the bytes stored at ref. They are valid until the next Set or Delete.
func (t *Table) Block(ref Ref) []byte {
	c := t.heap.chunk(ref)
	k := keyLen(c)
	return c[headerLen+k : headerLen+k+blockLen(c)]
}

// Key returns the key stored at ref, valid as long as Block's bytes.
func (t *Table) Key(ref Ref) []byte {
	c := t.heap.chunk(ref)
	return c[headerLen : headerLen+keyLen(c)]
}

// Set stores block under key and marks it changed. block must not alias the table's memory.
func (t *Table) Set(key, block []byte) Ref {
	ref := t.put(Hash(key), key, block)
	t.changed(ref, t.heap.chunk(ref))
	return ref
}

// Add is Set for a key that is known to be absent, with its Hash.
func (t *Table) Add(hash uint64, key, block []byte) Ref {
	ref := t.add(hash, key, block)
	t.changed(ref, t.heap.chunk(ref))
	return ref
}

func (t *Table) changed(ref Ref, chunk []byte) {
	if chunk[offGen] == 0 {
		chunk[offGen] = t.gen
		t.dirty[t.gen].add(ref, &t.spare)
	}
}

// Replace is Set for a key that is known to be at ref.
func (t *Table) Replace(ref Ref, key, block []byte) Ref {
	c := t.heap.chunk(ref)
	if need := headerLen + len(key) + len(block); !t.heap.fits(ref, need) {
		return t.Set(key, block)
	}
	putHeader(c, c[offGen], len(key), len(block))
	copy(c[headerLen+len(key):], block)
	t.changed(ref, c)
	return ref
}

// Load stores block under key, whose Hash is known, as read from the changelog: unchanged.
func (t *Table) Load(hash uint64, key, block []byte) { t.put(hash, key, block) }

func (t *Table) add(hash uint64, key, block []byte) Ref {
	ref, c := t.heap.alloc(headerLen + len(key) + len(block))
	putHeader(c, 0, len(key), len(block))
	copy(c[headerLen:], key)
	copy(c[headerLen+len(key):], block)
	t.insert(hash, ref)
	t.len++
	return ref
}

func (t *Table) put(hash uint64, key, block []byte) Ref {
	sub, i, ok := t.find(hash, key)
	if !ok {
		return t.add(hash, key, block)
	}
	need := headerLen + len(key) + len(block)
	ref := sub.slots[i].ref
	c := t.heap.chunk(ref)
	if t.heap.fits(ref, need) {
		putHeader(c, c[offGen], len(key), len(block))
		copy(c[headerLen+len(key):], block)
		return ref
	}
	gen := c[offGen]
	next, n := t.heap.alloc(need)
	putHeader(n, gen, len(key), len(block))
	copy(n[headerLen:], key)
	copy(n[headerLen+len(key):], block)
	t.heap.free(ref)
	sub.slots[i].ref = next
	if gen != 0 { // the list still names the old chunk
		t.dirty[gen].add(next, &t.spare)
	}
	return next
}

// Delete removes the key, also from the changed ones.
func (t *Table) Delete(key []byte) {
	sub, i, ok := t.find(Hash(key), key)
	if !ok {
		return
	}
	t.heap.free(sub.slots[i].ref)
	t.len--
	sub.remove(i)
}

// Copied notes that the block at ref was copied: it is unchanged again.
func (t *Table) Copied(ref Ref) { t.heap.chunk(ref)[offGen] = 0 }

// Touch marks the key changed, if it is there.
func (t *Table) Touch(key []byte) {
	ref, ok := t.Get(key)
	if !ok {
		return
	}
	t.changed(ref, t.heap.chunk(ref))
}

// Parts is the number of parts of a table.
const Parts = subTables

// Part iterates over the blocks of one part. The table must not change meanwhile.
func (t *Table) Part(i int) iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for _, s := range t.subs[i].slots {
			if s.ref != 0 && !yield(s.ref) {
				return
			}
		}
	}
}

// Sweep visits up to n places of the index, continuing where the last call ended, and yields their
// keys. The table must not change until it has returned.
func (t *Table) Sweep(n int) iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for ; n > 0; n-- {
			if t.cursor.slot >= len(t.subs[t.cursor.sub].slots) {
				t.cursor = sweepPlace{sub: (t.cursor.sub + 1) % subTables}
				continue
			}
			s := t.subs[t.cursor.sub].slots[t.cursor.slot]
			t.cursor.slot++
			if s.ref != 0 && !yield(s.ref) {
				return
			}
		}
	}
}

// All yields every key, in no order. The table must not change meanwhile.
func (t *Table) All() iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for i := range t.subs {
			for _, s := range t.subs[i].slots {
				if s.ref != 0 && !yield(s.ref) {
					return
				}
			}
		}
	}
}

func (t *Table) find(hash uint64, key []byte) (*subTable, int, bool) {
	sub := &t.subs[hash>>(64-subBits)]
	if len(sub.slots) == 0 {
		return sub, 0, false
	}
	mask := len(sub.slots) - 1
	for i := int(uint32(hash)) & mask; ; i = (i + 1) & mask {
		s := sub.slots[i]
		if s.ref == 0 {
			return sub, i, false
		}
		if s.hash == uint32(hash) && bytes.Equal(t.Key(s.ref), key) {
			return sub, i, true
		}
	}
}

func (t *Table) insert(hash uint64, ref Ref) {
	sub := &t.subs[hash>>(64-subBits)]
	if (sub.used+1)*4 > len(sub.slots)*3 {
		sub.grow()
	}
	sub.used++
	sub.place(slot{uint32(hash), ref})
}

func (s *subTable) grow() {
	old := s.slots
	s.slots = make([]slot, max(minSlots, 2*len(old)))
	for _, o := range old {
		if o.ref != 0 {
			s.place(o)
		}
	}
}

func (s *subTable) place(n slot) {
	mask := len(s.slots) - 1
	i := int(n.hash) & mask
	for s.slots[i].ref != 0 {
		i = (i + 1) & mask
	}
	s.slots[i] = n
}

// remove frees place i and closes the gap, so that probes need no tombstones (Knuth, TAOCP vol. 3,
// 6.4, algorithm R).
func (s *subTable) remove(i int) {
	mask := len(s.slots) - 1
	s.used--
	for j := i; ; {
		s.slots[i] = slot{}
		for {
			j = (j + 1) & mask
			if s.slots[j].ref == 0 {
				return
			}
			home := int(s.slots[j].hash) & mask
			if (j-home)&mask >= (j-i)&mask {
				break
			}
		}
		s.slots[i] = s.slots[j]
		i = j
	}
}

// A chunk holds: generation (1 byte), key length (2), block length (4), key, block.
const (
	offGen    = 0
	headerLen = 7
)

func keyLen(c []byte) int   { return int(binary.LittleEndian.Uint16(c[1:])) }
func blockLen(c []byte) int { return int(binary.LittleEndian.Uint32(c[3:])) }

func putHeader(c []byte, gen uint8, key, block int) {
	c[offGen] = gen
	binary.LittleEndian.PutUint16(c[1:], uint16(key))
	binary.LittleEndian.PutUint32(c[3:], uint32(block))
}
