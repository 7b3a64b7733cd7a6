package windows

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// The first byte of a state is its format: the version of its layout above, the kind of counter
// below. Each kind has its own in its file.
const kindBits = 0x0f

// ErrNewer means that a counter was written by a newer binary than this one.
var ErrNewer = errors.New("windows: the counter is of a newer version than this binary reads")

// What most states begin with: the format, and the latest time in eight bytes. Of present
// times a varint would be as long.
const headBytes = 9

const maxVarint = binary.MaxVarintLen64

const maxUnits = uint64(event.MaxDecimal / event.One)

// newHead begins a state in the memory of an empty one.
func newHead(state []byte, format byte, latest event.Micros) []byte {
	state = append(state[:0], format)
	return binary.LittleEndian.AppendUint64(state, uint64(latest))
}

func getLatest(state []byte) event.Micros {
	return event.Micros(binary.LittleEndian.Uint64(state[1:headBytes]))
}

func putLatest(state []byte, latest event.Micros) {
	binary.LittleEndian.PutUint64(state[1:headBytes], uint64(latest))
}

// An amount is a varint: whole numbers doubled, all others doubled in millionths plus 1, so
// that small counts take one byte.
func appendAmount(b []byte, d event.Decimal) []byte {
	return appendUvarint(b, packAmount(d))
}

func readAmount(b []byte) (event.Decimal, int) {
	v, n := uvarint(b)
	return unpackAmount(v), n
}

func packAmount(d event.Decimal) uint64 {
	if q := uint64(d) / uint64(event.One); q*uint64(event.One) == uint64(d) {
		return q << 1
	}
	return uint64(d)<<1 | 1
}

func unpackAmount(v uint64) event.Decimal {
	if v&1 == 0 {
		return event.Decimal(v>>1) * event.One
	}
	return event.Decimal(v >> 1)
}

func unitsToDecimal(units uint64) event.Decimal {
	return event.Decimal(min(units, maxUnits)) * event.One
}

// appendUvarint saves a loop for what takes one byte.
func appendUvarint(b []byte, v uint64) []byte {
	if v < 0x80 {
		return append(b, byte(v))
	}
	return binary.AppendUvarint(b, v)
}

// uvarint reads a varint of a state that is known to be well-formed. A decoder that takes
// eight bytes at once was no faster: most are one byte.
func uvarint(b []byte) (uint64, int) {
	if b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}

// splice puts repl in the place of b[i:j].
func splice(b []byte, i, j int, repl []byte) []byte {
	if len(repl) == j-i {
		copy(b[i:], repl)
		return b
	}
	return slices.Replace(b, i, j, repl...)
}
