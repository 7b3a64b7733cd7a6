package windows

import (
	"encoding/binary"

	"github.com/tallygate/tallygate/event"
)

// ExactDistinct is up to how many distinct values are counted exactly. A count that is not an
// estimate stops one above it.
const ExactDistinct = 1024

// A set of values is their number, a varint, and their hashes, eight bytes each; or, where
// more than ExactDistinct are estimated, isSketch and a sketch.
const (
	hashBytes = 8
	isSketch  = 1 << 12 // no number of values
	setBytes  = maxVarint + hashBytes*(ExactDistinct+1)
)

// valueSet is a set within a state: its bytes are b.
type valueSet struct {
	n      int    // how many hashes; of a sketch, 0
	sketch []byte // nil: there are hashes
	hashes []byte
	size   int // of all of it
}

// joinSets makes one set of the one at state[from:mid] and the one from mid to the end.
func joinSets(state []byte, from, mid int, estimate bool) []byte {
	var buf [setBytes]byte
	other := buf[:copy(buf[:], state[mid:])]
	state = state[:mid]
	v, w := readSet(state[from:]), readSet(other)
	switch {
	case v.sketch != nil && w.sketch != nil:
		mergeSketch(v.sketch, w.sketch)
	case w.sketch != nil:
		fillMore(w.sketch, v.hashes)
		return append(state[:from], other[:w.size]...)
	default:
		for i := 0; i < len(w.hashes); i += hashBytes {
			state, _ = addToSet(state, from, binary.LittleEndian.Uint64(w.hashes[i:]), estimate)
		}
	}
	return state
}

// addToSet adds a value to the set that lies in state from from on. It tells whether the value
// was there; of a sketch, whether it changed nothing. What is more than exact is estimated, or left out.
func addToSet(state []byte, from int, hash uint64, estimate bool) (_ []byte, known bool) {
	v := readSet(state[from:])
	switch {
	case v.sketch != nil:
		return state, !sketchAdd(v.sketch, hash)
	case hasHash(v.hashes, hash):
		return state, true
	case v.n < ExactDistinct, v.n == ExactDistinct && !estimate:
		var buf [maxVarint + hashBytes]byte
		end := from + v.size
		state = splice(state, end, end, binary.LittleEndian.AppendUint64(buf[:0], hash))
		was := v.size - len(v.hashes)
		return splice(state, from, from+was, appendUvarint(buf[:0], uint64(v.n+1))), false
	case !estimate:
		return state, false // one above what is exact: it is over any limit
	}
	var buf [maxVarint + sketchBytes]byte
	head := appendUvarint(buf[:0], isSketch)
	sketch := buf[len(head) : len(head)+sketchBytes]
	fillMore(sketch, v.hashes)
	raise(sketch, hash)
	reestimate(sketch, ExactDistinct+1)
	return splice(state, from, from+v.size, buf[:len(head)+sketchBytes]), false
}

// readSet reads the set that b begins with.
func readSet(b []byte) valueSet {
	n, size := uvarint(b)
	if n == isSketch {
		return valueSet{sketch: b[size : size+sketchBytes], size: size + sketchBytes}
	}
	end := size + hashBytes*int(n)
	return valueSet{n: int(n), hashes: b[size:end], size: end}
}

func (v *valueSet) count() event.Decimal {
	if v.sketch != nil {
		return sketchCount(v.sketch)
	}
	return event.Decimal(v.n) * event.One
}

func hasHash(hashes []byte, hash uint64) bool {
	for i := 0; i+hashBytes <= len(hashes); i += hashBytes {
		if binary.LittleEndian.Uint64(hashes[i:]) == hash {
			return true
		}
	}
	return false
}

// checkSet reads a set that may be anything.
func checkSet(r *reader, estimate bool) {
	n := r.number(0, isSketch)
	size := hashBytes * int(n)
	switch {
	case n == isSketch && estimate:
		size = sketchBytes
	case n > ExactDistinct && (estimate || n > ExactDistinct+1):
		r.fail(errRange)
		return
	}
	if r.err != nil || size > len(r.rest) {
		r.fail(errTruncated)
		return
	}
	if n == isSketch && !checkSketch(r.rest[:size]) {
		r.fail(errRange)
		return
	}
	r.rest = r.rest[size:]
}
