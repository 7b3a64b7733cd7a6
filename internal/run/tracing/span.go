// Package tracing sends spans to an OpenTelemetry collector, by OTLP over HTTP.
//
// It encodes OTLP's own messages and posts them, in place of the OpenTelemetry SDK and its exporter. That
// exporter links gRPC, which the aggregator never does; and the SDK draws the ids of spans and times them
// while they are open, whereas these spans are over when they are told, and their ids are known before:
// see docs/adr/0019.
package tracing

import (
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/tallygate/tallygate/event"
)

// Span is a span that is over. Nothing in it may name a person: no uid, address or key.
type Span struct {
	Trace  event.Trace // the trace, and this span's own id
	Parent [8]byte     // zero: the trace begins here
	Name   string
	Kind   Kind
	// Start and End are by this machine's clock or, where it is a broker's that is ahead, not after End.
	Start, End event.Micros
	Attrs      []Attr
	Moments    []Moment
}

// Kind is a span's role among its neighbours.
type Kind = tracepb.Span_SpanKind

// The kinds of spans.
const (
	Internal = tracepb.Span_SPAN_KIND_INTERNAL
	Producer = tracepb.Span_SPAN_KIND_PRODUCER
	Consumer = tracepb.Span_SPAN_KIND_CONSUMER
)

// Attr is an attribute of a span. Make it with Text, Number, Flag or List.
type Attr struct {
	key   string
	value *commonpb.AnyValue
}

// Text is an attribute that is a string.
func Text(key, value string) Attr {
	return Attr{key, &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

// Number is an attribute that is a whole number.
func Number(key string, value int64) Attr {
	return Attr{key, &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: value}}}
}

// Flag is an attribute that is true or false.
func Flag(key string, value bool) Attr {
	return Attr{key, &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: value}}}
}

// List is an attribute that is a list of strings.
func List(key string, values []string) Attr {
	list := &commonpb.ArrayValue{}
	for _, v := range values {
		list.Values = append(list.Values, Text("", v).value)
	}
	return Attr{key, &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: list}}}
}

// Moment is something that happened during a span.
type Moment struct {
	Name string
	At   event.Micros
}

func keyValues(attrs []Attr) []*commonpb.KeyValue {
	out := make([]*commonpb.KeyValue, len(attrs))
	for i, a := range attrs {
		out[i] = &commonpb.KeyValue{Key: a.key, Value: a.value}
	}
	return out
}

// sampled is the flag of a context that is sampled.
const sampled = 1

func (s *Span) encode() *tracepb.Span {
	out := &tracepb.Span{
		TraceId: s.Trace.ID[:], SpanId: s.Trace.Span[:], Flags: sampled, Name: s.Name, Kind: s.Kind,
		StartTimeUnixNano: nanos(min(s.Start, s.End)), EndTimeUnixNano: nanos(s.End), Attributes: keyValues(s.Attrs),
	}
	if s.Parent != [8]byte{} {
		out.ParentSpanId = s.Parent[:]
	}
	for _, m := range s.Moments {
		out.Events = append(out.Events, &tracepb.Span_Event{Name: m.Name, TimeUnixNano: nanos(m.At)})
	}
	return out
}

func nanos(at event.Micros) uint64 { return uint64(at.Time().UnixNano()) }

// request is the body of a request to a collector. Its bytes are those of an ExportTraceServiceRequest, whose package
// links gRPC.
func request(resource *resourcepb.Resource, spans []Span) *tracepb.TracesData {
	scope := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: "github.com/tallygate/tallygate"}}
	for i := range spans {
		scope.Spans = append(scope.Spans, spans[i].encode())
	}
	return &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{Resource: resource, ScopeSpans: []*tracepb.ScopeSpans{scope}}}}
}
