package shard

import (
	"encoding/binary"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// simSpans are the spans of a simulation. Shards crash and count again: the same step has the same span then,
// and no other one has it.
type simSpans struct {
	counted                      map[event.Trace]simSpan
	forwarded, begun, ofVerdicts int
}

// simSpan identifies a span.
type simSpan struct {
	parent    [8]byte
	partition int32
	offset    int64
}

func simTraceOf(emitter int, seq uint64) event.Trace {
	var t event.Trace
	binary.BigEndian.PutUint64(t.ID[:], uint64(emitter)+1)
	binary.BigEndian.PutUint64(t.ID[8:], seq)
	binary.BigEndian.PutUint64(t.Span[:], seq)
	return t
}

// simTrace is the header of a forwarded event.
func simTrace(t *event.Trace) record.Headers {
	if t == nil {
		return record.Headers{}
	}
	return record.HeadersOf([]byte(event.HeaderTrace), t.AppendTo(nil))
}

func (s *simSpans) note(w *simGroup, e *Effects) {
	if s.counted == nil {
		s.counted = map[event.Trace]simSpan{}
	}
	for i := range e.Counted {
		c := &e.Counted[i]
		is := simSpan{c.Parent, c.Partition, c.Offset}
		if was, known := s.counted[c.Trace]; known && was != is {
			w.fail("two steps have the span %v: %+v and %+v", c.Trace, was, is)
		}
		s.counted[c.Trace] = is
		if c.Forwarded {
			s.forwarded++
		}
		if c.Parent == [8]byte{} {
			s.begun++
		}
	}
	for i := range e.Published {
		p := &e.Published[i]
		if p.Traced == nil {
			continue
		}
		s.ofVerdicts++
		if _, known := s.counted[p.Traced.Counted]; !known || p.Verdict.Trace.ID != p.Traced.Counted.ID || p.Traced.Durable == event.NoTime {
			w.fail("the verdict %+v is below no span: %+v", p.Verdict, p.Traced)
		}
	}
}

// add adds another simulation's numbers.
func (s *simSpans) add(o *simSpans) {
	s.forwarded += o.forwarded
	s.begun += o.begun
	s.ofVerdicts += o.ofVerdicts
}
