package aggregator

import (
	"strconv"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/tracing"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// tracer makes spans of what became of events, and of their verdicts. They name rules and places in Kafka,
// and no keys.
type tracer struct {
	spans  *tracing.Exporter
	topics topics.Names
}

// Counted sends the span from the broker's time of an event until it was applied.
func (t *tracer) Counted(c *shard.Counted) {
	at := now()
	if c.At != event.NoTime {
		at = c.At
	}
	s := tracing.Span{Trace: c.Trace, Parent: c.Parent, Name: "tallygate.count", Kind: tracing.Consumer, Start: at, End: at}
	if c.Broker != event.NoTime {
		s.Start = min(c.Broker, at)
	}
	s.Attrs = []tracing.Attr{
		tracing.Text("messaging.system", "kafka"), tracing.Text("messaging.operation.type", "process"),
		tracing.Text("messaging.destination.name", t.topics.Events), tracing.Number("messaging.kafka.offset", c.Offset),
		partitionAttr(c.Partition), tracing.Text("tallygate.result", c.Result), tracing.Flag("tallygate.forwarded", c.Forwarded),
	}
	if len(c.Limits) > 0 {
		s.Attrs = append(s.Attrs, tracing.List("tallygate.rules", c.Limits))
	}
	t.spans.Send(s)
}

// Published sends the span from a verdict's event being applied until the verdict is in its topic.
func (t *tracer) Published(p *shard.Published) {
	v, of := &p.Verdict, p.Traced
	s := tracing.Span{Trace: v.Trace, Parent: of.Counted.Span, Name: "tallygate.verdict", Kind: tracing.Producer, Start: of.At, End: max(of.At, p.At)}
	s.Attrs = []tracing.Attr{
		tracing.Text("messaging.system", "kafka"), tracing.Text("messaging.operation.type", "send"),
		tracing.Text("messaging.destination.name", t.topics.Verdicts), tracing.Number("messaging.kafka.offset", p.Offset),
		tracing.Text("tallygate.rule", v.Rule), tracing.Text("tallygate.state", v.State.String()), tracing.Text("tallygate.mode", v.Mode.String()),
		tracing.Text("tallygate.action", v.Action.String()), tracing.Number("tallygate.seq", v.Seq),
	}
	if of.Durable != event.NoTime {
		s.Moments = []tracing.Moment{{Name: "durable", At: of.Durable}}
	}
	t.spans.Send(s)
}

func partitionAttr(partition int32) tracing.Attr {
	return tracing.Text("messaging.destination.partition.id", strconv.Itoa(int(partition)))
}

func now() event.Micros { return event.FromTime(time.Now()) }
