package aggregate

import (
	"encoding/binary"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/event"
)

// A record of the loop topic is a version, a kind, and what the kind says. An event carries
// its origin, so that the receiver can drop what it has seen before, and its first broker
// time.
const (
	loopVersion   = 1
	loopKindEvent = 1
)

// origin is where a forwarded event came from: an input partition, and the place in it.
type origin struct {
	partition int32
	offset    int64
	index     int
}

func appendForward(dst []byte, from origin, broker event.Micros, e *event.Event) []byte {
	dst = append(dst, loopVersion, loopKindEvent)
	dst = binary.AppendUvarint(dst, uint64(from.partition))
	dst = binary.AppendUvarint(dst, uint64(from.offset))
	dst = binary.AppendUvarint(dst, uint64(from.index))
	dst = binary.AppendVarint(dst, int64(broker))
	return event.AppendJSON(dst, e)
}

func decodeForward(src []byte) (from origin, broker event.Micros, body []byte, err error) {
	if len(src) < 2 {
		return from, 0, nil, fmt.Errorf("loop record of %d bytes", len(src))
	}
	if src[0] != loopVersion || src[1] != loopKindEvent {
		return from, 0, nil, fmt.Errorf("%w: loop record version %d, kind %d", errNewerFormat, src[0], src[1])
	}
	r := reader{buf: src[2:]}
	from = origin{int32(r.uvarint()), int64(r.uvarint()), int(r.uvarint())}
	broker = event.Micros(r.varint())
	if r.bad {
		return from, 0, nil, fmt.Errorf("loop record that is cut short")
	}
	return from, broker, r.buf, nil
}
