package owner

import (
	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
)

// Tracer is told of events whose traces are sampled, and of the verdicts that they triggered, once these
// are in their topic. It is called with a partition's lock held: it must not block.
type Tracer interface {
	Counted(c *shard.Counted)
	Published(p *shard.Published)
}

// traceHeader is the header of a forwarded event's trace context; nil for none.
func traceHeader(t *event.Trace) []sarama.RecordHeader {
	if t == nil {
		return nil
	}
	return []sarama.RecordHeader{{Key: []byte(event.HeaderTrace), Value: t.AppendTo(nil)}}
}
