package shard

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/wire"
)

// A record of the loop topic is a version, a kind, and what the kind says. An event carries
// its origin, so that the receiver can drop what it has seen before, and its first broker
// time.
const (
	loopVersion        = 1
	loopKindEvent      = 1
	loopKindGeneration = 2 // an event whose origin has a generation
	loopKindCommand    = 3 // a command's JSON
	loopKindLost       = 4 // a lost permit's JSON
)

// origin is the place that a forwarded event came from: an input partition, offset and index. The generation counts
// how often the partition's offsets have started over: it is another one when the event topic was created anew.
type origin struct {
	partition  int32
	offset     int64
	index      int
	generation uint32
}

// valid reports whether there may be such an origin.
func (o origin) valid() bool { return o.partition >= 0 && o.offset >= 0 && o.index >= 0 }

// seen is the highest origin of an input partition that was seen.
type seen struct {
	applied    applied
	generation uint32
}

func (s seen) covers(o origin) bool {
	return s.generation == o.generation && s.applied.covers(o.offset, o.index)
}

// isCommand reports whether a loop record holds a command.
func isCommand(value []byte) bool {
	return len(value) > 1 && value[0] == loopVersion && value[1] == loopKindCommand
}

// appendForward appends a forward of an event in its own JSON, which is never longer than what an
// event may have: its texts are canonical.
func appendForward(dst []byte, from origin, broker event.Micros, e *event.Event) []byte {
	return event.AppendJSON(appendOrigin(dst, from, broker), e)
}

// appendForwardRaw appends a forward of an event as it came. So it is what was decoded here,
// whatever its JSON is like, and no longer.
func appendForwardRaw(dst []byte, from origin, broker event.Micros, raw []byte) []byte {
	return append(appendOrigin(dst, from, broker), raw...)
}

func appendOrigin(dst []byte, from origin, broker event.Micros) []byte {
	if from.generation == 0 {
		dst = append(dst, loopVersion, loopKindEvent)
	} else {
		dst = append(dst, loopVersion, loopKindGeneration)
		dst = binary.AppendUvarint(dst, uint64(from.generation))
	}
	dst = binary.AppendUvarint(dst, uint64(from.partition))
	dst = binary.AppendUvarint(dst, uint64(from.offset))
	dst = binary.AppendUvarint(dst, uint64(from.index))
	return binary.AppendVarint(dst, int64(broker))
}

func decodeForward(src []byte) (from origin, broker event.Micros, body []byte, err error) {
	if len(src) < 2 {
		return from, 0, nil, fmt.Errorf("loop record of %d bytes", len(src))
	}
	if src[0] != loopVersion || src[1] != loopKindEvent && src[1] != loopKindGeneration {
		return from, 0, nil, fmt.Errorf("%w: loop record version %d, kind %d", ErrNewerFormat, src[0], src[1])
	}
	r := wire.Reader{Buf: src[2:]}
	if src[1] == loopKindGeneration {
		from.generation = uint32(r.Uvarint())
	}
	from.partition, from.offset, from.index = int32(r.Uvarint()), int64(r.Uvarint()), int(r.Uvarint())
	broker = event.Micros(r.Varint()).Clamp()
	if r.Bad {
		return from, 0, nil, errors.New("loop record that is cut short")
	}
	if !from.valid() {
		return from, 0, nil, errors.New("loop record of an origin that there is not")
	}
	return from, broker, r.Buf, nil
}
