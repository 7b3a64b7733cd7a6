package shard

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
)

// The context of a sampled trace travels with an event: from its record's header to its steps, in the
// header of what is forwarded, and into the verdicts that it triggers. Nothing is counted otherwise for
// it, and of a state only a verdict that is not published yet has it. An event without one has a nil
// pointer on its way.
//
// Spans' ids are hashes of where they come from, since a shard draws no random numbers. So an event that
// is counted again after a crash makes the same spans again. No id is made of a key: keys are few enough
// to be guessed from it.

// spans tells of traced events.
type spans struct {
	cfg *Config
	out *Effects
}

// Counted is the fate of a traced event on one of its keys, or that it has none.
type Counted struct {
	Trace     event.Trace // of this span
	Parent    [8]byte     // zero: the trace begins here
	Limits    []string    // that it counted under
	Result    string      // counted, repeat, unknown_refund, unmatched, too_old, no_time
	Partition int32       // of the event topic, like Offset
	Offset    int64
	Forwarded bool         // from there to the partition of the key
	Broker    event.Micros // when the event came; event.NoTime where that is not known
	At        event.Micros // when it was applied
}

// Traced is the origin of verdicts of a traced event, in its trace and in time. Verdicts have the context of their
// own span.
type Traced struct {
	Counted event.Trace  // the span of the event's step
	At      event.Micros // when it was applied
	Durable event.Micros // when its state was
}

// Results of events that a Counted is about, as in tallygate_events_total.
const (
	resultCounted   = "counted"
	resultRepeat    = "repeat"
	resultUnknown   = "unknown_refund"
	resultTold      = "told"
	resultUnmatched = "unmatched"
	resultTooOld    = "too_old"
	resultNoTime    = "no_time"
)

func resultOf(res *rules.Result) string {
	switch {
	case res.Repeat:
		return resultRepeat
	case res.Unknown:
		return resultUnknown
	case res.Tells:
		return resultTold
	}
	return resultCounted
}

// of is the sampled context in a record's headers; nil for none, and where nobody wants spans.
func (s *spans) of(rec *record.Record) *event.Trace {
	if !s.cfg.Spans {
		return nil
	}
	for headers := rec.Headers; ; {
		key, value, ok := headers.Next()
		if !ok {
			return nil
		}
		if string(key) == event.HeaderTrace {
			if t, sampled := event.ParseTrace(value); sampled {
				return new(t)
			}
			return nil
		}
	}
}

// step tells of a traced event on a key.
func (s *spans) step(w *rules.Work, g *gatheredStep, result string, clock Clock) {
	limits := make([]string, len(w.Hits))
	for i := range w.Hits {
		limits[i] = w.Hits[i].Limit.Name
	}
	c := g.counted(g.stepSpan(w), result)
	c.Limits, c.At = limits, clock.Local
	s.out.Counted = append(s.out.Counted, c)
}

// uncounted tells of a traced event that counts under no rule, or at no time.
func (s *spans) uncounted(o *occurrence) {
	if o.trace == nil {
		return
	}
	result := resultUnmatched
	switch {
	case o.counts:
	case o.at == event.NoTime:
		result = resultNoTime
	default:
		result = resultTooOld
	}
	s.out.Counted = append(s.out.Counted, o.counted(o.span(0), result))
}

func (g *gatheredStep) counted(span event.Trace, result string) Counted {
	return Counted{
		Trace: span, Parent: g.trace.Span, Result: result, Partition: g.cause.Partition, Offset: g.cause.Offset,
		Forwarded: g.source == Loop, Broker: g.broker, At: event.NoTime,
	}
}

// stepSpan is the span of an event on a key. An event counts once under each limit, so that the first one
// tells its keys apart. There is none where only a permit is settled.
func (g *gatheredStep) stepSpan(w *rules.Work) event.Trace {
	if len(w.Hits) == 0 {
		return g.span(0)
	}
	return g.span(1 + w.Hits[0].Limit.Index)
}

// span is a span below the event's own context.
func (g *gatheredStep) span(which int) event.Trace {
	return below(*g.trace, uint64(g.cause.Partition), uint64(g.cause.Offset), uint64(g.place.index), uint64(which))
}

// verdicts returns the origin of a step's verdicts; nil if it is not traced. One of SpanEvery that is not begins a
// trace of its own.
func (s *spans) verdicts(w *rules.Work, g *gatheredStep, clock Clock) *Traced {
	if !s.cfg.Spans || g.shape == nil {
		return nil
	}
	if g.trace == nil && !s.begin(w, g, clock) {
		return nil
	}
	return &Traced{Counted: g.stepSpan(w), At: clock.Local, Durable: event.NoTime}
}

// begin gives a step a trace of its own, if it is the turn of the event: by a hash of where it is, so
// that all of its verdicts are of one trace.
func (s *spans) begin(w *rules.Work, g *gatheredStep, clock Clock) bool {
	if s.cfg.SpanEvery == 0 {
		return false
	}
	var seed event.Trace
	binary.BigEndian.PutUint64(seed.ID[:], s.cfg.Seed)
	high := below(seed, uint64(g.cause.Partition), uint64(g.cause.Offset), uint64(g.place.index), 0)
	if binary.BigEndian.Uint64(high.Span[:])%s.cfg.SpanEvery != 0 {
		return false
	}
	low := below(high, 1)
	copy(seed.ID[:], high.Span[:])
	copy(seed.ID[8:], low.Span[:])
	g.trace = &seed
	s.step(w, g, resultCounted, clock)
	return true
}

// span is the span of the step's verdict with this number.
func (t *Traced) span(i int) event.Trace {
	if t == nil {
		return event.Trace{}
	}
	return below(t.Counted, uint64(i))
}

// durable notes when the state was durable.
func (t *Traced) durable(clock Clock) {
	if t != nil {
		t.Durable = clock.Local
	}
}

// below is a span of the same trace whose id follows from that of another one, and from these numbers.
func below(t event.Trace, numbers ...uint64) event.Trace {
	buf := append(make([]byte, 0, 64), t.ID[:]...)
	buf = append(buf, t.Span[:]...)
	for _, n := range numbers {
		buf = binary.BigEndian.AppendUint64(buf, n)
	}
	binary.BigEndian.PutUint64(t.Span[:], max(1, xxhash.Sum64(buf)))
	return t
}
