package suggest

import (
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// userSketch counts how many users stand behind a key that has no uid. It keeps the smallest hashes: up to
// exactUsers it is exact, beyond that an estimate, of which two of three are within 13%.
type userSketch struct {
	// Sorted.
	hashes []uint64
	full   bool
	// Events without a uid.
	absent int
}

const exactUsers = 64

// hashUID is a user as sketches know it; 0 is nobody.
func hashUID(uid string) uint64 {
	if uid == "" {
		return 0
	}
	return max(xxhash.Sum64String(uid), 1)
}

// add notes a user, and returns by how many bytes the sketch has grown.
func (s *userSketch) add(uid uint64) int64 {
	if uid == 0 {
		s.absent++
		return 0
	}
	i, known := slices.BinarySearch(s.hashes, uid)
	switch {
	case known:
		return 0
	case len(s.hashes) < exactUsers:
		s.hashes = slices.Insert(s.hashes, i, uid)
		return 8
	}
	if s.full = true; i < exactUsers {
		s.hashes = slices.Insert(s.hashes[:exactUsers-1], i, uid)
	}
	return 0
}

// count estimates the number of users: of that many hashes, spread evenly, the exactUsers-th has its place.
func (s *userSketch) count() int {
	if !s.full {
		return len(s.hashes)
	}
	share := float64(s.hashes[exactUsers-1]) / math.MaxUint64
	return max(int(math.Round((exactUsers-1)/share)), exactUsers+1)
}
