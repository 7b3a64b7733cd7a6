package windows

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
)

// The first byte of a state: the version of its layout above, the kind of counter below.
const (
	formatTumbling = 0x11
	formatCalendar = 0x12
	formatExact    = 0x13
	formatPanes    = 0x14
	formatSession  = 0x15
	formatBucket   = 0x16
	formatDistinct = 0x17
	formatRecent   = 0x18

	formatTail = 0x23 // formatExact with a tail: see exact.go
)

// kindBits are the kind's part of a format.
const kindBits = 0x0f

// ErrNewer means that a counter was written by a newer binary than this one.
var ErrNewer = errors.New("windows: the counter is of a newer version than this binary reads")

// What most states begin with: the format, and the latest time in eight bytes. Of present
// times a varint would be as long.
const headBytes = 9

const maxVarint = binary.MaxVarintLen64

var (
	errTruncated = errors.New("it ends too early")
	errTrailing  = errors.New("it goes on after its end")
	errNumber    = errors.New("a number is not in its shortest form")
	errRange     = errors.New("a number is out of range")
	errTime      = errors.New("a time is out of range")
	errOrder     = errors.New("times are out of order")
	errTotal     = errors.New("the total is not the sum of its parts")
)

func (s *Spec) format() byte {
	switch {
	case s.Distinct && s.Kind == Sliding:
		return formatRecent
	case s.Distinct:
		return formatDistinct
	case s.Kind == Session:
		return formatSession
	case s.Kind == Bucket:
		return formatBucket
	case s.Kind == Tumbling:
		return formatTumbling
	case s.Kind == Calendar:
		return formatCalendar
	case s.Exact:
		return formatExact
	default:
		return formatPanes
	}
}

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

// uvarint reads a varint of a state that is known to be well-formed. A decoder that takes
// eight bytes at once was no faster: most are one byte.
func uvarint(b []byte) (uint64, int) {
	if b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}

// appendUvarint saves a loop for what takes one byte.
func appendUvarint(b []byte, v uint64) []byte {
	if v < 0x80 {
		return append(b, byte(v))
	}
	return binary.AppendUvarint(b, v)
}

// An amount is a varint: whole numbers doubled, all others doubled in millionths plus 1, so
// that small counts take one byte.
func appendAmount(b []byte, d event.Decimal) []byte {
	return appendUvarint(b, packAmount(d))
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

func readAmount(b []byte) (event.Decimal, int) {
	v, n := uvarint(b)
	return unpackAmount(v), n
}

// splice puts repl in the place of b[i:j].
func splice(b []byte, i, j int, repl []byte) []byte {
	if len(repl) == j-i {
		copy(b[i:], repl)
		return b
	}
	return slices.Replace(b, i, j, repl...)
}

// reader reads a state that may be anything. The first error stays.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

func (r *reader) head() event.Micros {
	if len(r.rest) < headBytes {
		r.fail(errTruncated)
		return 0
	}
	latest := getLatest(r.rest)
	r.rest = r.rest[headBytes:]
	if latest != clamp(latest) {
		r.fail(errTime)
		return 0
	}
	return latest
}

// number reads a varint in its shortest form, from least to most.
func (r *reader) number(least, most uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	switch {
	case n == 0:
		r.fail(errTruncated)
		return least
	case n < 0 || n > 1 && r.rest[n-1] == 0:
		r.fail(errNumber)
		return least
	case v < least || v > most:
		r.fail(errRange)
		return least
	}
	r.rest = r.rest[n:]
	return v
}

// amount reads an amount of at least least.
func (r *reader) amount(least event.Decimal) event.Decimal {
	v := r.number(0, math.MaxUint64)
	switch {
	case v&1 == 0 && v>>1 > maxUnits:
		r.fail(errRange)
		return least
	case v&1 == 1 && event.Decimal(v>>1).Whole():
		r.fail(errNumber)
		return least
	case r.err == nil && unpackAmount(v) < least:
		r.fail(errRange)
		return least
	}
	return unpackAmount(v)
}

// more tells whether there is something left to read.
func (r *reader) more() bool { return r.err == nil && len(r.rest) > 0 }

// end returns the first error; what is left over is one too.
func (r *reader) end() error {
	if r.more() {
		return errTrailing
	}
	return r.err
}
