package windows

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/tallygate/tallygate/event"
)

var (
	errTruncated = errors.New("it ends too early")
	errTrailing  = errors.New("it goes on after its end")
	errNumber    = errors.New("a number is not in its shortest form")
	errRange     = errors.New("a number is out of range")
	errTime      = errors.New("a time is out of range")
	errOrder     = errors.New("times are out of order")
	errTotal     = errors.New("the total is not the sum of its parts")
)

// reader reads a state that may be anything. The first error stays.
type reader struct {
	rest []byte
	err  error
}

// end returns the first error; what is left over is one too.
func (r *reader) end() error {
	if r.more() {
		return errTrailing
	}
	return r.err
}

// more tells whether there is something left to read.
func (r *reader) more() bool { return r.err == nil && len(r.rest) > 0 }

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

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}
