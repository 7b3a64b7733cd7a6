package shard

import (
	"fmt"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
)

// The parts of the table of producers are records of their own in the changelog, under two keys each, in turns.
// A checkpoint names the version of each part that belongs to it. It is as of the checkpoint's cut: a
// newer one would have a new owner drop events that no state has yet, and so the one before stays until
// the next checkpoint is durable.

const partPrefix = "\x00producers/"

func partKey(part int, version uint64) string {
	return fmt.Sprintf("%s%02d/%d", partPrefix, part, version%2)
}

func isPart(key []byte) bool { return strings.HasPrefix(string(key), partPrefix) }

// keepCopy keeps a part as it was at the cut, before it changes.
func (p *producerPart) keepCopy() {
	if p.due && p.copied == nil {
		p.copied = p.append(nil, event.NoTime)
	}
}

// ProducerParts is how many parts the table of producers has.
const ProducerParts = producerParts

// ProducerPart asks for part i of the table of producers to be written, if it had changed at the last cut. It is called for
// each part between BeginCheckpoint and EndCheckpoint.
func (s *intake) ProducerPart(i int, clock Clock) {
	part := &s.producers.parts[i]
	if !part.due {
		return
	}
	value := part.copied
	if value == nil {
		value = part.append(nil, s.Time(clock)-forgetProducers)
	}
	part.due, part.copied = false, nil
	s.out.States = append(s.out.States, Append{Key: []byte(partKey(i, part.version)), Value: value})
}
