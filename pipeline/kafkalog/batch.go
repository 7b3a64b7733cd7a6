package kafkalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// Batch is the records of a record batch, one after the other. The zero value has none.
type Batch struct {
	common record.Batch
	from   int64  // records below were not asked for
	size   int    // bytes on the wire
	left   int    // how many records raw has
	epoch  int32  // of the leader that took it; noEpoch when it does not say
	own    int    // see Size
	raw    []byte // decompressed

	plain []Record    // instead of raw
	bad   *Unreadable // the rest of it, or all
}

// Unreadable is the error for records that arrived as they were sent, and that nobody can read:
// they decompress to more than Config.MaxBatch, or their fields contradict each other. Reading them
// again brings the same, so whoever reads may go on behind them.
type Unreadable struct {
	First, Last int64 // the offsets, both of them among those that cannot be read
	Bytes       int   // of their batch, as it was sent
	Err         error // why
}

// Error describes the place and the reason.
func (u *Unreadable) Error() string {
	return fmt.Sprintf("the batch of %d bytes with offsets %d to %d cannot be read: %v", u.Bytes, u.First, u.Last, u.Err)
}

// Unwrap returns Err.
func (u *Unreadable) Unwrap() error { return u.Err }

// unreadable is a batch of which nothing can be read.
func unreadable(e entry, from int64, why error) Batch {
	first := max(e.first(), from)
	if e.legacy() { // a wrapper has the offset of its last message
		first = from
	}
	return Batch{epoch: e.epoch(), bad: &Unreadable{First: first, Last: e.last(), Bytes: len(e), Err: why}}
}

// noEpoch is the leader epoch of a batch without one: formats before Kafka 0.11 have none.
const noEpoch = -1

// Epoch is that of the leader that took the batch, -1 when it does not say.
func (b *Batch) Epoch() int32 {
	if b.plain != nil {
		return noEpoch
	}
	return b.epoch
}

// Of is a batch of records that need no decoding.
func Of(records ...Record) Batch { return Batch{plain: records} }

// Len is about how many records are left: those that were not asked for are among them.
func (b *Batch) Len() int {
	if b.bad != nil {
		return 1
	}
	return b.left + len(b.plain)
}

// Size returns the batch's own memory, beside its chunk's: none if it is not compressed.
func (b *Batch) Size() int { return b.own }

// Next reads the next record into rec; false after the last. An error is an *Unreadable, which says
// how far what cannot be read goes; it comes again at each call.
func (b *Batch) Next(rec *Record) (ok bool, err error) {
	for b.bad == nil && b.left > 0 {
		n, err := rec.Decode(b.raw, &b.common)
		if err != nil {
			b.spoil(err)
			break
		}
		if b.left == 1 && n < len(b.raw) {
			b.spoil(fmt.Errorf("%d bytes after its last record", len(b.raw)-n))
			break
		}
		b.raw, b.common.Past = b.raw[n:], rec.Offset
		b.left--
		if rec.Offset >= b.from {
			return true, nil
		}
	}
	if b.bad != nil {
		return false, b.bad
	}
	if len(b.plain) == 0 {
		return false, nil
	}
	*rec, b.plain = b.plain[0], b.plain[1:]
	return true, nil
}

// spoil gives the rest of the batch up.
func (b *Batch) spoil(why error) {
	b.bad = &Unreadable{First: max(b.common.Past+1, b.from), Last: b.common.Last, Bytes: b.size, Err: why}
	b.raw, b.left = nil, 0
}

// The fields of a record batch, and of the older formats' messages as far as they are the same:
// https://kafka.apache.org/documentation/#recordbatch
const (
	atLength     = 8
	atEpoch      = 12
	atMagic      = 16
	atCRC        = 17
	atAttributes = 21
	atLastDelta  = 23
	atBaseTime   = 27
	atMaxTime    = 35
	atProducer   = 43
	atCount      = 57
	batchHeader  = 61

	lengthFrom = 12 // the length is of what follows it
	leastV0    = 26 // a message of the oldest format, without key and value
	leastV1    = 34

	codecMask         = 0x07
	attrAppendTime    = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
)

var (
	// ErrCorrupt is wrapped by the error for a batch that is not what its leader took: a disk's or
	// a connection's matter. It may be whole at the next attempt.
	ErrCorrupt = errors.New("kafkalog: a batch is corrupt")

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// entry is a record batch, or a message of the older formats, as it is on the wire.
type entry []byte

func (e entry) first() int64    { return int64(binary.BigEndian.Uint64(e)) }
func (e entry) legacy() bool    { return e[atMagic] < 2 }
func (e entry) attributes() int { return int(binary.BigEndian.Uint16(e[atAttributes:])) }
func (e entry) producer() int64 { return int64(binary.BigEndian.Uint64(e[atProducer:])) }
func (e entry) count() int      { return int(int32(binary.BigEndian.Uint32(e[atCount:]))) }

func (e entry) epoch() int32 {
	if e.legacy() {
		return noEpoch
	}
	return int32(binary.BigEndian.Uint32(e[atEpoch:]))
}

func (e entry) last() int64 {
	if e.legacy() {
		return e.first()
	}
	return e.first() + int64(int32(binary.BigEndian.Uint32(e[atLastDelta:])))
}

// splitEntry takes the first entry off raw. Where raw ends in the midst of it there is none, and
// size is how long it is in full, 0 if raw does not tell.
func splitEntry(raw []byte) (e entry, rest []byte, size int, err error) {
	if len(raw) <= atMagic {
		return nil, nil, 0, nil
	}
	size = int(int32(binary.BigEndian.Uint32(raw[atLength:]))) + lengthFrom
	least := batchHeader
	switch magic := raw[atMagic]; {
	case magic > 2:
		return nil, nil, 0, fmt.Errorf("%w: format %d at offset %d", ErrCorrupt, magic, entry(raw).first())
	case magic == 1:
		least = leastV1
	case magic == 0:
		least = leastV0
	}
	if size < least {
		return nil, nil, 0, fmt.Errorf("%w: %d bytes at offset %d", ErrCorrupt, size, entry(raw).first())
	}
	if size > len(raw) {
		return nil, nil, size, nil
	}
	return entry(raw[:size:size]), raw[size:], size, nil
}

// check compares the entry with its checksum, and its last offset with what lies below it.
func (e entry) check() error {
	if e.legacy() {
		return nil // kgo does
	}
	if is, want := crc32.Checksum(e[atAttributes:], castagnoli), binary.BigEndian.Uint32(e[atCRC:]); is != want {
		return fmt.Errorf("%w: its checksum is %08x, not %08x, at offset %d", ErrCorrupt, is, want, e.first())
	}
	if delta := e.last() - e.first(); delta < 0 || delta < int64(e.count())-1 {
		return fmt.Errorf("%w: its last offset is %d above its first, and it has %d records, at offset %d", ErrCorrupt, delta, e.count(), e.first())
	}
	return nil
}

// open decompresses the batch.
func (e entry) open(u *unpacker, from int64) (Batch, error) {
	attributes, count := e.attributes(), e.count()
	raw, err := u.unpack(attributes&codecMask, e[batchHeader:])
	switch {
	case errors.Is(err, errCodec): // a newer program may know it
		return Batch{}, fmt.Errorf("batch at offset %d: %w", e.first(), err)
	case err != nil:
		return unreadable(e, from, err), nil
	case count < 0 || count > len(raw):
		return unreadable(e, from, fmt.Errorf("%d records in %d bytes", count, len(raw))), nil
	}
	own := cap(raw)
	if attributes&codecMask == codecNone {
		own = 0
	}
	return Batch{
		own: own,
		common: record.Batch{
			First:      e.first(),
			Last:       e.last(),
			Past:       e.first() - 1,
			BaseTime:   batchTime(e[atBaseTime:]),
			MaxTime:    batchTime(e[atMaxTime:]),
			AppendTime: attributes&attrAppendTime != 0,
		},
		from:  from,
		size:  len(e),
		epoch: e.epoch(),
		left:  count,
		raw:   raw,
	}, nil
}

// noTime is time.Time's zero.
var noTime = time.Time{}.UnixMilli()

// batchTime is a batch's time; a negative one is none.
func batchTime(b []byte) int64 {
	if ms := int64(binary.BigEndian.Uint64(b)); ms >= 0 {
		return record.Clamp(ms)
	}
	return noTime
}

// Record is one record of a batch.
type Record = record.Record

// Headers are a record's.
type Headers = record.Headers
