package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// Batch is the records of a record batch, one after the other. The zero value has none.
type Batch struct {
	first             int64  // offset
	baseTime, maxTime int64  // Unix milliseconds
	appendTime        bool   // all records have maxTime
	from              int64  // records below were not asked for
	left              int    // how many records raw has
	raw               []byte // decompressed

	plain []Record // instead of raw
}

// Of is a batch of records that need no decoding.
func Of(records ...Record) Batch { return Batch{plain: records} }

// Len is about how many records are left: those that were not asked for are among them.
func (b *Batch) Len() int { return b.left + len(b.plain) }

// Next reads the next record into rec; false after the last.
func (b *Batch) Next(rec *Record) (ok bool, err error) {
	for b.left > 0 {
		n, err := rec.decode(b.raw, b)
		if err != nil {
			return false, fmt.Errorf("read a record of the batch at %d: %w", b.first, err)
		}
		b.raw = b.raw[n:]
		if b.left--; b.left == 0 && len(b.raw) > 0 {
			return false, fmt.Errorf("read the batch at %d: %d bytes behind its last record", b.first, len(b.raw))
		}
		if rec.Offset >= b.from {
			return true, nil
		}
	}
	if len(b.plain) == 0 {
		return false, nil
	}
	*rec, b.plain = b.plain[0], b.plain[1:]
	return true, nil
}

// The fields of a record batch, and of the older formats' messages as far as they are the same:
// https://kafka.apache.org/documentation/#recordbatch
const (
	atLength     = 8
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
	errCorrupt = errors.New("fetch: a batch is corrupt")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// entry is a record batch, or a message of the older formats, as it is on the wire.
type entry []byte

func (e entry) first() int64    { return int64(binary.BigEndian.Uint64(e)) }
func (e entry) legacy() bool    { return e[atMagic] < 2 }
func (e entry) attributes() int { return int(binary.BigEndian.Uint16(e[atAttributes:])) }
func (e entry) producer() int64 { return int64(binary.BigEndian.Uint64(e[atProducer:])) }
func (e entry) count() int      { return int(int32(binary.BigEndian.Uint32(e[atCount:]))) }

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
		return nil, nil, 0, fmt.Errorf("%w: format %d at offset %d", errCorrupt, magic, entry(raw).first())
	case magic == 1:
		least = leastV1
	case magic == 0:
		least = leastV0
	}
	if size < least {
		return nil, nil, 0, fmt.Errorf("%w: %d bytes at offset %d", errCorrupt, size, entry(raw).first())
	}
	if size > len(raw) {
		return nil, nil, size, nil
	}
	return entry(raw[:size:size]), raw[size:], size, nil
}

// check compares the entry with its checksum.
func (e entry) check() error {
	if e.legacy() {
		return nil // kgo does
	}
	if is, want := crc32.Checksum(e[atAttributes:], castagnoli), binary.BigEndian.Uint32(e[atCRC:]); is != want {
		return fmt.Errorf("%w: its checksum is %08x, not %08x, at offset %d", errCorrupt, is, want, e.first())
	}
	return nil
}

// open decompresses the batch.
func (e entry) open(u *unpacker, from int64) (Batch, error) {
	attributes, count := e.attributes(), e.count()
	raw, err := u.unpack(attributes&codecMask, e[batchHeader:])
	if err != nil {
		return Batch{}, fmt.Errorf("batch at offset %d: %w", e.first(), err)
	}
	if count < 0 || count > len(raw) {
		return Batch{}, fmt.Errorf("%w: %d records in %d bytes at offset %d", errCorrupt, count, len(raw), e.first())
	}
	return Batch{
		first:      e.first(),
		baseTime:   batchTime(e[atBaseTime:]),
		maxTime:    batchTime(e[atMaxTime:]),
		appendTime: attributes&attrAppendTime != 0,
		from:       from,
		left:       count,
		raw:        raw,
	}, nil
}

// noTime is time.Time's zero.
var noTime = time.Time{}.UnixMilli()

// batchTime is a batch's time; a negative one is none.
func batchTime(b []byte) int64 {
	if ms := int64(binary.BigEndian.Uint64(b)); ms >= 0 {
		return ms
	}
	return noTime
}

// Time is when the record came, as its topic has it.
func (rec *Record) Time() time.Time { return time.UnixMilli(rec.Timestamp) }
