package owner

import (
	"encoding/binary"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// Tracer is told of events whose traces are sampled, and of the verdicts that they triggered, once these
// are in their topic. It is called with a partition's lock held: it must not block.
type Tracer interface {
	Counted(c *shard.Counted)
	Published(p *shard.Published)
}

// forwardHeaders are those of a forwarded event, or a pack: its trace context, and the version of the rules.
func forwardHeaders(f *shard.Forward) (headers []sarama.RecordHeader) {
	if f.Trace != nil {
		headers = append(headers, sarama.RecordHeader{Key: []byte(event.HeaderTrace), Value: f.Trace.AppendTo(nil)})
	}
	if f.Rules != 0 {
		headers = append(headers, sarama.RecordHeader{Key: []byte(shard.HeaderRules), Value: binary.BigEndian.AppendUint64(nil, f.Rules)})
	}
	return headers
}
