package accesslog

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// repeats counts equal lines, in bounded memory: when the newer generation is full, the older one
// is forgotten. Equal lines have one timestamp, so they stand close together in a log.
type repeats struct {
	newer, older map[uint64]uint32
	generation   int // how many lines each holds
}

func newRepeats(generation int) repeats {
	return repeats{newer: map[uint64]uint32{}, generation: generation}
}

// id names the line: 32 hexadecimal digits of a SHA-256.
func (r *repeats) id(line []byte) string {
	sum := sha256.Sum256(line)
	if n := r.before(binary.LittleEndian.Uint64(sum[:])); n > 0 {
		sum = sha256.Sum256(binary.BigEndian.AppendUint32(sum[:], n))
	}
	return hex.EncodeToString(sum[:16])
}

// before returns how many lines of this hash came before, and counts this one.
func (r *repeats) before(hash uint64) uint32 {
	n, ok := r.newer[hash]
	if !ok {
		n = r.older[hash]
		if len(r.newer) >= r.generation {
			r.newer, r.older = make(map[uint64]uint32), r.newer
		}
	}
	r.newer[hash] = n + 1
	return n
}
