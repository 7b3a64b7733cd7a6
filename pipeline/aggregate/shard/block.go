package shard

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/wire"
)

// A key's block, in memory: version, the two applied offsets, when its state is spent, and the
// state that package rules keeps. Its form in the changelog has the key's unpublished verdicts in
// front (see wire.go).
const blockVersion = 1

// block is a key's decoded header. state aliases the bytes it was decoded from.
type block struct {
	applied [Sources]applied
	spent   event.Micros // when the state no longer matters, if nothing more happens
	state   []byte
}

var errBlock = errors.New("shard: a state block that is not well-formed")

func appendBlockHeader(dst []byte, b *block) []byte {
	dst = append(dst, blockVersion)
	for _, a := range b.applied {
		dst = binary.AppendUvarint(dst, uint64(a.next))
		if a.next > 0 {
			dst = binary.AppendUvarint(dst, uint64(a.index))
		}
	}
	return binary.AppendVarint(dst, int64(b.spent))
}

// blockHeaderSpace is room for the longest header in front of a state.
var blockHeaderSpace [1 + 2*int(Sources)*binary.MaxVarintLen64 + binary.MaxVarintLen64]byte

// putBlockHeader writes b's header right in front of the state that begins behind buf's
// blockHeaderSpace, and returns the block.
func putBlockHeader(buf []byte, b *block) []byte {
	var room [len(blockHeaderSpace)]byte
	header := appendBlockHeader(room[:0], b)
	start := len(room) - len(header)
	copy(buf[start:], header)
	return buf[start:]
}

func decodeBlock(src []byte) (b block, err error) {
	err = b.decode(src)
	return b, err
}

// decode reads a block into b, which is empty.
func (b *block) decode(src []byte) error {
	if len(src) == 0 {
		return errBlock
	}
	if src[0] != blockVersion {
		return fmt.Errorf("%w: version %d, this program reads %d", ErrNewerFormat, src[0], blockVersion)
	}
	r := wire.Reader{Buf: src[1:]}
	for i := range b.applied {
		b.applied[i].next = int64(r.Uvarint())
		if b.applied[i].next > 0 {
			b.applied[i].index = int(r.Uvarint())
		}
	}
	b.spent = event.Micros(r.Varint())
	b.state = r.Buf
	if r.Bad {
		*b = block{}
		return errBlock
	}
	return nil
}

// What a key's changelog record holds: a version, the verdicts that were not yet published
// when it was written, and the block as it is in memory.
const wireVersion = 1

// unpublished is a verdict whose publication has not been acknowledged.
type unpublished struct {
	seq  int64  // -1 as long as its state record's offset is not known
	body []byte // the verdict as JSON, its seq aside
}

func appendWire(dst []byte, pending []unpublished, block []byte) []byte {
	dst = append(dst, wireVersion)
	dst = binary.AppendUvarint(dst, uint64(len(pending)))
	for _, u := range pending {
		dst = binary.AppendVarint(dst, u.seq)
		dst = wire.AppendBytes(dst, u.body)
	}
	return append(dst, block...)
}

// wireBytes is at least as many as appendWire appends.
func wireBytes(pending []unpublished, block []byte) int {
	n := 1 + binary.MaxVarintLen32 + len(block)
	for i := range pending {
		n += 2*binary.MaxVarintLen64 + len(pending[i].body)
	}
	return n
}

// decodeWire is appendWire's inverse; what it returns aliases src.
func decodeWire(src []byte) (pending []unpublished, block []byte, err error) {
	if len(src) == 0 {
		return nil, nil, errBlock
	}
	if src[0] != wireVersion {
		return nil, nil, fmt.Errorf("%w: record version %d, this program reads %d", ErrNewerFormat, src[0], wireVersion)
	}
	r := wire.Reader{Buf: src[1:]}
	for n := r.Uvarint(); n > 0 && !r.Bad; n-- {
		pending = append(pending, unpublished{seq: r.Varint(), body: r.Bytes()})
	}
	if r.Bad {
		return nil, nil, errBlock
	}
	return pending, r.Buf, nil
}

// ParseState reads a key's record of the changelog: how many verdicts it has that were not
// published when it was written, and the state that package rules keeps.
func ParseState(value []byte) (unpublished int, state []byte, err error) {
	pending, raw, err := decodeWire(value)
	if err != nil {
		return 0, nil, err
	}
	b, err := decodeBlock(raw)
	return len(pending), b.state, err
}
