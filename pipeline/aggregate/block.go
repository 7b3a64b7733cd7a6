package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/event"
)

// A key's block, in memory: version, the two marks, when its state is spent, and the state
// that package rules keeps. Its form in the changelog has the key's unpublished verdicts in
// front (see wire.go).
const blockVersion = 1

// mark is the place of the last event applied: what is at or below it is skipped. The zero
// mark is below every event.
type mark struct {
	next  int64 // the record's offset plus one
	index int   // of the event in its record
}

// covers reports whether the event at (offset, index) is at or below m.
func (m mark) covers(offset int64, index int) bool {
	return m.next > offset+1 || m.next == offset+1 && m.index >= index
}

// lane is one of the two topics that a key's events come from.
type lane uint8

const (
	inputLane lane = iota // the event topic's partition
	loopLane              // what other partitions forwarded
	lanes
)

// block is a key's decoded header. state aliases the bytes it was decoded from.
type block struct {
	marks [lanes]mark
	spent event.Micros // when the state no longer matters, if nothing more happens
	state []byte
}

var errBlock = errors.New("aggregate: a state block that is not well-formed")

func appendBlockHeader(dst []byte, b *block) []byte {
	dst = append(dst, blockVersion)
	for _, m := range b.marks {
		dst = binary.AppendUvarint(dst, uint64(m.next))
		if m.next > 0 {
			dst = binary.AppendUvarint(dst, uint64(m.index))
		}
	}
	return binary.AppendVarint(dst, int64(b.spent))
}

// blockHeaderSpace is room for the longest header in front of a state.
var blockHeaderSpace [1 + 2*lanes*binary.MaxVarintLen64 + binary.MaxVarintLen64]byte

// putBlockHeader writes b's header right in front of the state that begins behind buf's
// blockHeaderSpace, and returns the block.
func putBlockHeader(buf []byte, b *block) []byte {
	var room [len(blockHeaderSpace)]byte
	header := appendBlockHeader(room[:0], b)
	start := len(room) - len(header)
	copy(buf[start:], header)
	return buf[start:]
}

func decodeBlock(src []byte) (block, error) {
	var b block
	if len(src) == 0 {
		return b, errBlock
	}
	if src[0] != blockVersion {
		return b, fmt.Errorf("%w: version %d, this program reads %d", errNewerFormat, src[0], blockVersion)
	}
	r := reader{buf: src[1:]}
	for i := range b.marks {
		b.marks[i].next = int64(r.uvarint())
		if b.marks[i].next > 0 {
			b.marks[i].index = int(r.uvarint())
		}
	}
	b.spent = event.Micros(r.varint())
	b.state = r.buf
	if r.bad {
		return block{}, errBlock
	}
	return b, nil
}

// reader takes varints and byte strings off a buffer; bad is set once one is missing.
type reader struct {
	buf []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.buf)
	return v * r.took(n)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.buf)
	return v * int64(r.took(n))
}

func (r *reader) took(n int) uint64 {
	if n <= 0 {
		r.bad, r.buf = true, nil
		return 0
	}
	r.buf = r.buf[n:]
	return 1
}

// bytes takes a string with its length in front; it aliases the buffer.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.buf)) {
		r.bad, r.buf = true, nil
		return nil
	}
	b := r.buf[:n:n]
	r.buf = r.buf[n:]
	return b
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}
