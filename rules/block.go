package rules

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// block is the verdict that a key last got from a limit, as it was published last. It stays
// in the state until the limit's latest time has passed until and the next event comes. A quota's
// exact end is not in here: the window knows it. On the wire:
//
//	since      8 bytes
//	until      uvarint: less since
//	count      uvarint: when it was published
//	limit      uvarint: that it was judged by
//	partition  varint: of the event that let it fall
//	offset     varint
//	id         uvarint length, bytes
type block struct {
	since, until event.Micros
	count, limit event.Decimal
	partition    int32
	offset       int64
	id           []byte
}

func (b *block) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.since))
	dst = binary.AppendUvarint(dst, uint64(b.until-b.since))
	dst = binary.AppendUvarint(dst, uint64(b.count))
	dst = binary.AppendUvarint(dst, uint64(b.limit))
	dst = binary.AppendVarint(dst, int64(b.partition))
	dst = binary.AppendVarint(dst, b.offset)
	dst = binary.AppendUvarint(dst, uint64(len(b.id)))
	return append(dst, b.id...)
}

// size is how many bytes append appends.
func (b *block) size() int {
	return 8 + uvarintLen(uint64(b.until-b.since)) +
		uvarintLen(uint64(b.count)) + uvarintLen(uint64(b.limit)) +
		varintLen(int64(b.partition)) + varintLen(b.offset) +
		uvarintLen(uint64(len(b.id))) + len(b.id)
}

func varintLen(v int64) int { return uvarintLen(uint64(v)<<1 ^ uint64(v>>63)) }

// readBlock takes a block off the front of b; its id is a part of b.
func readBlock(b []byte) (blk block, rest []byte, err error) {
	if len(b) < 8 {
		return blk, nil, fmt.Errorf("%w: a block is cut off", errState)
	}
	r := varints{b: b[8:]}
	blk.since = event.Micros(binary.LittleEndian.Uint64(b))
	blk.until = blk.since + event.Micros(r.uvarint())
	blk.count = event.Decimal(r.uvarint())
	blk.limit = event.Decimal(r.uvarint())
	partition := r.varint()
	blk.offset = r.varint()
	n := r.uvarint()
	if r.bad || n > uint64(len(r.b)) || partition != int64(int32(partition)) {
		return blk, nil, fmt.Errorf("%w: a block is cut off", errState)
	}
	blk.partition = int32(partition)
	blk.id = r.b[:n]
	return blk, r.b[n:], nil
}

// varints reads numbers off the front of b; bad once one of them was none.
type varints struct {
	b   []byte
	bad bool
}

func (r *varints) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *varints) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// verdict is the block as the world sees it. The key's dimensions are shared.
func (b *block) verdict(l *Limit, key []event.Dim) verdict.Verdict {
	return verdict.Verdict{
		Rule:   l.Name,
		Key:    key,
		State:  verdict.Block,
		Mode:   l.Rule.Mode,
		Action: l.Rule.Then.Action,
		APIs:   l.Rule.APIs,
		Count:  b.count,
		Limit:  b.limit,
		Since:  b.since,
		Until:  b.until,
		Cause:  verdict.Cause{ID: string(b.id), Partition: b.partition, Offset: b.offset},
	}
}

// roundUp returns the first multiple of grain, since the epoch, that is not before at.
func roundUp(at, grain event.Micros) event.Micros {
	if grain <= 1 {
		return at
	}
	over := at % grain
	if over < 0 {
		over += grain
	}
	if over == 0 {
		return at
	}
	return later(at, grain-over)
}

// later returns at+span, span not negative; it saturates.
func later(at, span event.Micros) event.Micros {
	if at > math.MaxInt64-span {
		return math.MaxInt64
	}
	return at + span
}
