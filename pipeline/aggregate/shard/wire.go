package shard

import (
	"encoding/binary"
	"fmt"

	"github.com/tallygate/tallygate/internal/wire"
)

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
