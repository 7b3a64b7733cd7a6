package enforce

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"
)

// index finds a key's entry. It is an open-addressing table of 64-byte lines, each with seven slots and a tag
// of seven bits for each slot: a miss, which is what nearly all checks are, reads one cache line, and no key.
//
// Readers take no lock. There is one writer at a time, and it keeps to this: an entry that is in its
// slot is replaced there by one atomic store; a slot is filled before its tag is set, and its tag is
// cleared before it is emptied; an entry never moves to another slot, but for a new index that is
// complete before it is published. So a reader never misses a key that is held throughout.
type index struct {
	lines  []line
	shapes []*shape
	uid    *shape // the shape of uid alone; nil when no key has it
}

const (
	slotsPerLine = 7
	lowBytes     = 0x0001010101010101 // of a line's tags
	highBits     = 0x0080808080808080
	overflowed   = 1 << 56 // in a line's tags: entries that belong here went to the next line
	minLines     = 16
)

type line struct {
	tags  atomic.Uint64 // byte i is slot i's tag, 0 when it is empty; the highest byte is the flag
	slots [slotsPerLine]atomic.Pointer[entry]
}

func newIndex(lines int) *index { return &index{lines: make([]line, lines)} }

// shape is a list of dimensions that some keys have. A check looks for one key of each shape.
type shape struct {
	names   []string // sorted
	salt    uint64
	entries int // how many keys there are; the writer's
}

func tagOf(hash uint64) uint64 { return hash>>57 | 0x80 }

// find returns the entry of the key of this shape that the query has, nil when there is none.
func (x *index) find(s *shape, q *query) *entry {
	hash, ok := q.hash(s)
	if !ok {
		return nil
	}
	mask := uint64(len(x.lines) - 1)
	want := tagOf(hash) * lowBytes
	for i := hash & mask; ; i = (i + 1) & mask {
		l := &x.lines[i]
		tags := l.tags.Load()
		// Bytes of diff that are 0 have the tag. The lowest that this finds is one; ones above
		// may be false, and the key tells.
		diff := (tags ^ want) & (overflowed - 1)
		for m := (diff - lowBytes) &^ diff & highBits; m != 0; m &= m - 1 {
			e := l.slots[bits.TrailingZeros64(m)/8].Load()
			if e != nil && q.is(e, s) {
				return e
			}
		}
		if tags&overflowed == 0 {
			return nil
		}
	}
}

// findUID is find for the shape of uid alone. It is what nearly all checks are, and so it is written out: half the time
// of the general form is its calls.
func (x *index) findUID(uid string) *entry {
	s := x.uid
	hash := mix(s.salt, maphash.String(seed, uid))
	mask := uint64(len(x.lines) - 1)
	want := tagOf(hash) * lowBytes
	for i := hash & mask; ; i = (i + 1) & mask {
		l := &x.lines[i]
		tags := l.tags.Load()
		diff := (tags ^ want) & (overflowed - 1)
		for m := (diff - lowBytes) &^ diff & highBits; m != 0; m &= m - 1 {
			if e := l.slots[bits.TrailingZeros64(m)/8].Load(); e != nil && e.value == uid && e.shape == s {
				return e
			}
		}
		if tags&overflowed == 0 {
			return nil
		}
	}
}

// slot returns where an entry is, for the writer.
func (x *index) slot(e *entry) *atomic.Pointer[entry] {
	for at := range x.probe(e.hash) {
		for i := range at.slots {
			if at.slots[i].Load() == e {
				return &at.slots[i]
			}
		}
	}
	return nil
}

// probe yields the lines that an entry may be in.
func (x *index) probe(hash uint64) func(yield func(*line) bool) {
	return func(yield func(*line) bool) {
		mask := uint64(len(x.lines) - 1)
		for i, n := hash&mask, 0; n < len(x.lines); i, n = (i+1)&mask, n+1 {
			l := &x.lines[i]
			if !yield(l) || l.tags.Load()&overflowed == 0 {
				return
			}
		}
	}
}

// insert adds an entry that is not there, and returns how many lines overflowed with it. There must be room.
func (x *index) insert(e *entry) (flagged int) {
	mask := uint64(len(x.lines) - 1)
	for i := e.hash & mask; ; i = (i + 1) & mask {
		l := &x.lines[i]
		tags := l.tags.Load()
		for j := range l.slots {
			if tags>>(8*j)&0xff == 0 {
				l.slots[j].Store(e)
				l.tags.Store(tags | tagOf(e.hash)<<(8*j))
				return flagged
			}
		}
		if tags&overflowed == 0 {
			l.tags.Store(tags | overflowed)
			flagged++
		}
	}
}

// remove takes an entry out.
func (x *index) remove(e *entry) {
	for l := range x.probe(e.hash) {
		for j := range l.slots {
			if l.slots[j].Load() == e {
				l.tags.Store(l.tags.Load() &^ (0xff << (8 * j)))
				l.slots[j].Store(nil)
				return
			}
		}
	}
}

// resized returns a copy with room for this many entries in at most half its slots, and how many lines
// overflow there.
func (x *index) resized(entries int) (bigger *index, flagged int) {
	lines := minLines
	for lines*slotsPerLine < 2*entries {
		lines *= 2
	}
	bigger = newIndex(lines)
	bigger.shapes, bigger.uid = x.shapes, x.uid
	for e := range x.all {
		flagged += bigger.insert(e)
	}
	return bigger, flagged
}

// worn reports whether readers may have to walk far: with this many entries, or, since a line stays flagged when
// its entries leave, with this many flags. Below both, a line without a flag is always near.
func (x *index) worn(entries, flagged int) bool {
	return 5*entries > 3*len(x.lines)*slotsPerLine || 8*flagged > len(x.lines)
}

// sparse reports whether the index is much larger than this many entries need.
func (x *index) sparse(entries int) bool {
	return len(x.lines) > minLines && 16*entries < len(x.lines)*slotsPerLine
}

// all yields every entry. It may run beside the writer.
func (x *index) all(yield func(*entry) bool) {
	for i := range x.lines {
		for j := range x.lines[i].slots {
			if e := x.lines[i].slots[j].Load(); e != nil && !yield(e) {
				return
			}
		}
	}
}

// withShapes returns a copy that has other shapes and shares the lines.
func (x *index) withShapes(shapes []*shape) *index {
	y := &index{lines: x.lines, shapes: shapes}
	if i := slices.IndexFunc(shapes, func(s *shape) bool { return len(s.names) == 1 && s.names[0] == "uid" }); i >= 0 {
		y.uid = shapes[i]
	}
	return y
}
