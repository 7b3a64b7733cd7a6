// Package record is one record of a partition of Kafka as it is in its batch, undecoded as far as
// nobody asks. It is apart from what reads batches, so that those who count records link no Kafka
// client.
package record

import (
	"encoding/binary"
	"errors"
	"time"
)

// Record is one record of a batch. What it refers to is the batch's memory, which is never used
// again: it may be kept, and then keeps the whole batch.
type Record struct {
	Offset     int64
	Timestamp  int64  // Unix milliseconds, from MinTime to MaxTime; the batch's append time where the topic has that
	Key, Value []byte // nil is Kafka's null
	Headers    Headers
}

// The times that records have: the years 0 to 9999. What a producer says beyond is taken for the nearer of them,
// since sums of it would overflow.
const (
	MinTime = -62_167_219_200_000
	MaxTime = 253_402_300_799_999
)

// Clamp returns the nearest of the times that records have.
func Clamp(ms int64) int64 { return min(max(ms, MinTime), MaxTime) }

// Time is when the record came, as its topic has it.
func (rec *Record) Time() time.Time { return time.UnixMilli(rec.Timestamp) }

// Headers are a record's, undecoded. The zero value is none.
type Headers struct {
	left int
	raw  []byte
}

// HeadersOf are headers of these keys and values, in turns.
func HeadersOf(pairs ...[]byte) Headers {
	h := Headers{left: len(pairs) / 2}
	for _, b := range pairs[:2*h.left] {
		h.raw = append(binary.AppendVarint(h.raw, int64(len(b))), b...)
	}
	return h
}

// Len is how many are left.
func (h *Headers) Len() int { return h.left }

// Next takes the next header; false when there is none.
func (h *Headers) Next() (key, value []byte, ok bool) {
	if h.left <= 0 {
		return nil, nil, false
	}
	h.left--
	r := reader{buf: h.raw}
	key, value = r.bytes(), r.bytes()
	h.raw = r.buf
	return key, value, !r.bad
}

// Batch is what the records of a batch have in common.
type Batch struct {
	First, Last       int64 // its first and its last offset
	Past              int64 // the offset of the record that was decoded last
	BaseTime, MaxTime int64 // Unix milliseconds
	AppendTime        bool  // all records have MaxTime
}

var (
	errRecord = errors.New("a record's fields do not fit its length")
	errOffset = errors.New("a record's offset is not its batch's, or not above the one before")
)

// Decode reads a record that begins src, and returns its length.
func (rec *Record) Decode(src []byte, b *Batch) (n int, err error) {
	outer := reader{buf: src}
	length := outer.varint()
	if outer.bad || length < 0 || length > int64(len(outer.buf)) {
		return 0, errRecord
	}
	n = len(src) - len(outer.buf) + int(length)
	r := reader{buf: outer.buf[:length:length]}
	r.skip(1) // attributes: there are none
	since := r.varint()
	rec.Offset = b.First + r.varint()
	if rec.Offset <= b.Past || rec.Offset > b.Last { // another batch's records would be taken for repeats
		return 0, errOffset
	}
	rec.Key, rec.Value = r.bytes(), r.bytes()
	rec.Timestamp = Clamp(b.MaxTime)
	if !b.AppendTime { // neither sum overflows
		rec.Timestamp = Clamp(Clamp(b.BaseTime) + min(max(since, 2*MinTime), 2*MaxTime))
	}
	rec.Headers = Headers{}
	if headers := r.varint(); headers > 0 {
		if headers > int64(len(r.buf)) {
			return 0, errRecord
		}
		rec.Headers = Headers{int(headers), r.buf}
		for range headers {
			if r.bytes() == nil || r.bad { // a key is never null
				return 0, errRecord
			}
			r.bytes()
		}
	}
	if r.bad || len(r.buf) > 0 {
		return 0, errRecord
	}
	return n, nil
}

// reader reads a record's fields. After one that is not there, bad is set, and all else is empty.
type reader struct {
	buf []byte
	bad bool
}

// varint reads a zigzag number.
func (r *reader) varint() int64 {
	if len(r.buf) > 0 && r.buf[0] < 0x80 {
		u := r.buf[0]
		r.buf = r.buf[1:]
		return int64(u>>1) ^ -int64(u&1)
	}
	v, n := binary.Varint(r.buf)
	if n <= 0 {
		r.buf, r.bad = nil, true
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

// bytes reads a length and as many bytes; a negative length is null.
func (r *reader) bytes() []byte {
	n := r.varint()
	if n < 0 || r.bad {
		return nil
	}
	if n > int64(len(r.buf)) {
		r.buf, r.bad = nil, true
		return nil
	}
	b := r.buf[:n:n]
	r.buf = r.buf[n:]
	return b
}

func (r *reader) skip(n int) {
	if n > len(r.buf) {
		r.buf, r.bad = nil, true
		return
	}
	r.buf = r.buf[n:]
}
