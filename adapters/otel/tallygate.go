// Package tallygate ties events and verdicts to a service's own OpenTelemetry traces:
//
//	spans := tallygate.New(otel.GetTracerProvider())
//	emitter, err := emit.New(spans.Emitter(emit.Config{Brokers: brokers}))
//	table, err := enforce.NewTable(enforce.Config{Traced: spans.Enforced})
//	handler := httplimit.Middleware(table, httplimit.Options{Events: emitter, Event: spans.Event})(next)
//
// with the middleware of otelhttp around the handler. Then the trace of a request that is sampled shows its
// event until Kafka has it, and what aggregators and enforcers with --trace-otlp add to it: that it was counted, the
// verdict that it triggered, and where that is in force.
package tallygate

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/verdict"
)

// TracesPerSecond is how many events a second are sent with their context, unless emit.Config says otherwise.
const TracesPerSecond = 100

// Spans makes a service's spans. Its methods may be called by many goroutines. No span has a uid, an address
// or a key.
type Spans struct {
	tracer trace.Tracer
	open   sync.Map // event.Trace to trace.Span: of events that are on their way
}

// New returns the Spans of a provider; nil is the global one.
func New(provider trace.TracerProvider) *Spans {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return &Spans{tracer: provider.Tracer("github.com/tallygate/tallygate/adapters/otel")}
}

// Emitter returns the settings of an emitter whose events may be given to Start or Event.
func (s *Spans) Emitter(c emit.Config) emit.Config {
	if c.TracesPerSecond == 0 {
		c.TracesPerSecond = TracesPerSecond
	}
	further := c.Traced
	c.Traced = func(of event.Trace, err error) {
		s.end(of, err)
		if further != nil {
			further(of, err)
		}
	}
	return c
}

// Event is an httplimit.Options.Event: events are below the span of their request's context.
func (s *Spans) Event(r *http.Request, e *event.Event) bool {
	s.Start(r.Context(), e)
	return true
}

// Start begins the span of an event, which lasts until Kafka has acknowledged it, and gives the event its
// context. The event must be given to an emitter made by Emitter's settings. It does nothing if the span in
// ctx is not sampled.
func (s *Spans) Start(ctx context.Context, e *event.Event) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	_, span := s.tracer.Start(ctx, "tallygate.emit", trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("messaging.system", "kafka"), attribute.String("messaging.operation.type", "send"), attribute.String("tallygate.api", e.API)))
	c := span.SpanContext()
	if !c.IsSampled() {
		span.End()
		return
	}
	e.Trace = event.Trace{ID: c.TraceID(), Span: c.SpanID()}
	s.open.Store(e.Trace, span)
}

func (s *Spans) end(of event.Trace, err error) {
	open, ok := s.open.LoadAndDelete(of)
	if !ok {
		return
	}
	span := open.(trace.Span)
	if errors.Is(err, emit.ErrNotTraced) {
		span.SetAttributes(attribute.Bool("tallygate.context_sent", false))
	} else if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Enforced is an enforce.Config.Traced: the span from a block's event until it is in force in this table.
func (s *Spans) Enforced(v *verdict.Verdict, at event.Micros) {
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: v.Trace.ID, SpanID: v.Trace.Span, TraceFlags: trace.FlagsSampled, Remote: true})
	_, span := s.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), parent), "tallygate.enforced",
		trace.WithTimestamp(min(v.Since, at).Time()), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.String("tallygate.rule", v.Rule), attribute.String("tallygate.action", v.Action.String()), attribute.Int64("tallygate.seq", v.Seq)))
	span.End(trace.WithTimestamp(at.Time()))
}
