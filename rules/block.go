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
//	face       4 bytes: Limit.faces; 0 when it is not known
//	shadow     1 byte
//	name       uvarint length, bytes: of the verdict, so that it can be cleared when no rule has the name
//
// States of version 1 end behind the id.
type block struct {
	since, until event.Micros
	count, limit event.Decimal
	partition    int32
	offset       int64
	id           []byte
	face         uint32
	shadow       bool
	name         []byte
}

func (b *block) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.since))
	dst = binary.AppendUvarint(dst, uint64(b.until-b.since))
	dst = binary.AppendUvarint(dst, uint64(b.count))
	dst = binary.AppendUvarint(dst, uint64(b.limit))
	dst = binary.AppendVarint(dst, int64(b.partition))
	dst = binary.AppendVarint(dst, b.offset)
	dst = appendText(dst, b.id)
	dst = binary.LittleEndian.AppendUint32(dst, b.face)
	shadow := byte(0)
	if b.shadow {
		shadow = 1
	}
	return appendText(append(dst, shadow), b.name)
}

func appendText(dst, text []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

// block takes a block off the front; its texts are parts of the state.
func (r *varints) block(version byte) (b block) {
	b.since = event.Micros(r.fixed())
	b.until = b.since + event.Micros(r.uvarint())
	b.count = event.Decimal(r.uvarint())
	b.limit = event.Decimal(r.uvarint())
	partition := r.varint()
	b.offset = r.varint()
	b.id = r.text()
	if b.partition = int32(partition); int64(b.partition) != partition {
		r.bad = true
	}
	if version == 1 {
		return b
	}
	if len(r.b) < 5 {
		r.bad = true
		return b
	}
	b.face, b.shadow = binary.LittleEndian.Uint32(r.b), r.b[4] == 1
	r.bad = r.bad || r.b[4] > 1
	r.b = r.b[5:]
	b.name = r.text()
	return b
}

// check reports what no block has.
func (b *block) check() error {
	if b.until < b.since || b.count < 0 || b.limit < 0 {
		return fmt.Errorf("%w: a block that ends before it begins, or has no count", errState)
	}
	return nil
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

func (r *varints) fixed() uint64 {
	const size = 8
	if len(r.b) < size {
		r.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[size:]
	return v
}

func (r *varints) text() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	text := r.b[:n]
	r.b = r.b[n:]
	return text
}

// verdict is the block as the world sees it. The key's dimensions are shared.
func (b *block) verdict(l *Limit, key []event.Dim) verdict.Verdict {
	v := verdict.Verdict{
		Rule:   string(b.name),
		Public: l.Rule.Public,
		Key:    key,
		State:  verdict.Block,
		Action: l.Rule.Then.Action,
		APIs:   l.Rule.APIs,
		Count:  b.count,
		Limit:  b.limit,
		Since:  b.since,
		Until:  b.until,
		Cause:  verdict.Cause{ID: string(b.id), Partition: b.partition, Offset: b.offset},
	}
	switch {
	case len(b.name) == 0: // of version 1
		v.Rule, v.Mode = l.Name, l.Rule.Mode
	case b.shadow:
		v.Mode = verdict.Shadow
	}
	return v
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
