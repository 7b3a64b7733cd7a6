package index

import (
	"math/rand/v2"
	"testing"
)

// An empty slot's reference may be of a chunk that is gone: a check panicked when the search by
// words took an empty slot, behind one that has the tag, for another that has it.
func TestAnEmptySlotIsNoCandidate(t *testing.T) {
	for range 100_000 {
		word, want := uint64(0), tagOf(rand.Uint64())
		var tags [slotsPerBucket]uint64
		for i := range tags {
			if rand.IntN(2) == 0 {
				tags[i] = tagOf(rand.Uint64N(4) ^ want)
			}
			word |= tags[i] << (8 * i)
		}
		if rand.IntN(2) == 0 {
			word |= overflowed
		}
		found := map[int]bool{}
		for m := candidates(word, want); m != 0; m &= m - 1 {
			found[slotOf(m)] = true
		}
		for i, tag := range tags {
			if tag == want && !found[i] || tag == 0 && found[i] {
				t.Fatalf("tags %x, looking for %x: slot %d is a candidate: %v", tags, want, i, found[i])
			}
		}
	}
}

// A writer that counted wrongly stops: it does not look for room for ever.
func TestBucketsWithoutRoomPanic(t *testing.T) {
	l := make(buckets, 2)
	for i := range len(l) * slotsPerBucket {
		l.insert(0, uint32(i)) // all belong to the first
	}
	defer func() {
		if recover() == nil {
			t.Error("a key was added where there was no room")
		}
	}()
	l.insert(0, 0)
}
