package shard

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/internal/wire"
	"github.com/tallygate/tallygate/pipeline/event"
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
