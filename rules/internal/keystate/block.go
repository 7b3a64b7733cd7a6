package keystate

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tallygate/tallygate/event"
)

// Block is the verdict that a key last got from a limit, as it was published last. It stays
// in the state until the limit's latest time has passed until and the next event comes. A quota's
// exact end is not in here: the window knows it. On the wire:
//
//	since      8 bytes
//	until      uvarint: less since
//	count      uvarint: when it was published
//	limit      uvarint: that it was judged by
//	partition  varint: of the event that triggered it
//	offset     varint
//	id         uvarint length, bytes
//	display    4 bytes: a hash of what the verdict shows besides numbers; 0 when it is not known
//	shadow     1 byte
//	name       uvarint length, bytes: of the verdict, so that it can be cleared when no rule has the name
//
// States of version 1 end behind the id.
type Block struct {
	Since, Until event.Micros
	Count, Limit event.Decimal
	Partition    int32
	Offset       int64
	ID           []byte
	Display      uint32
	Shadow       bool
	Name         []byte
}

// Append appends the block.
func (b *Block) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Since))
	dst = binary.AppendUvarint(dst, uint64(b.Until-b.Since))
	dst = binary.AppendUvarint(dst, uint64(b.Count))
	dst = binary.AppendUvarint(dst, uint64(b.Limit))
	dst = binary.AppendVarint(dst, int64(b.Partition))
	dst = binary.AppendVarint(dst, b.Offset)
	dst = appendText(dst, b.ID)
	dst = binary.LittleEndian.AppendUint32(dst, b.Display)
	shadow := byte(0)
	if b.Shadow {
		shadow = 1
	}
	return appendText(append(dst, shadow), b.Name)
}

func appendText(dst, text []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

// Block takes a block off the front; its texts are parts of the state.
func (r *varints) block(version byte) (b Block) {
	b.Since = event.Micros(r.fixed())
	b.Until = b.Since + event.Micros(r.uvarint())
	b.Count = event.Decimal(r.uvarint())
	b.Limit = event.Decimal(r.uvarint())
	partition := r.varint()
	b.Offset = r.varint()
	b.ID = r.text()
	if b.Partition = int32(partition); int64(b.Partition) != partition {
		r.bad = true
	}
	if version == 1 {
		return b
	}
	if len(r.b) < 5 {
		r.bad = true
		return b
	}
	b.Display, b.Shadow = binary.LittleEndian.Uint32(r.b), r.b[4] == 1
	r.bad = r.bad || r.b[4] > 1
	r.b = r.b[5:]
	b.Name = r.text()
	return b
}

// check reports what no block has.
func (b *Block) check() error {
	if b.Until < b.Since || b.Count < 0 || b.Limit < 0 {
		return fmt.Errorf("%w: a block that ends before it begins, or has no count", ErrMalformed)
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

func (r *varints) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	b := r.b[0]
	r.b = r.b[1:]
	return b
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

// Later returns at+span, span not negative; it saturates.
func Later(at, span event.Micros) event.Micros {
	if at > math.MaxInt64-span {
		return math.MaxInt64
	}
	return at + span
}
