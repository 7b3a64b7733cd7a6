// Package collectortest is an OpenTelemetry collector for tests: it keeps the spans that it gets by OTLP over
// HTTP.
package collectortest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector keeps spans. Make it with Start.
type Collector struct {
	// URL is what --trace-otlp is to be given.
	URL string

	mu       sync.Mutex
	spans    []Span
	requests int
	answer   func(http.ResponseWriter) bool
	header   http.Header
	raw      []byte
}

// Span is a span as it came.
type Span struct {
	Service, Name     string
	Trace, ID, Parent string // in hex; no parent is ""
	Kind              string
	Start, End        time.Time
	Attrs             map[string]any // string, int64, bool or []string
	Moments           []string
}

// Start returns a collector that ends with the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	s := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

// Answer has requests answered by f, as long as that returns true.
func (c *Collector) Answer(f func(http.ResponseWriter) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = f
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.header = r.Header.Clone()
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "want a POST of protobuf to /v1/traces", http.StatusNotFound)
		return
	}
	if c.answer != nil && c.answer(w) {
		return
	}
	var data tracepb.TracesData
	if err := proto.Unmarshal(body, &data); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.raw = append(c.raw, body...)
	for _, rs := range data.ResourceSpans {
		resource := attrs(rs.Resource.GetAttributes())
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans = append(c.spans, decode(resource, s))
			}
		}
	}
}

func decode(resource map[string]any, s *tracepb.Span) Span {
	service, _ := resource["service.name"].(string)
	out := Span{
		Service: service, Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Kind: s.Kind.String(), Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)), Attrs: attrs(s.Attributes),
	}
	for _, e := range s.Events {
		out.Moments = append(out.Moments, e.Name)
	}
	return out
}

func attrs(list []*commonpb.KeyValue) map[string]any {
	out := map[string]any{}
	for _, a := range list {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out[a.Key] = v.IntValue
		case *commonpb.AnyValue_BoolValue:
			out[a.Key] = v.BoolValue
		case *commonpb.AnyValue_ArrayValue:
			texts := []string{}
			for _, t := range v.ArrayValue.Values {
				texts = append(texts, t.GetStringValue())
			}
			out[a.Key] = texts
		}
	}
	return out
}

// Spans are those that came so far, in that order.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Named are the spans of a name in a trace; in all traces if that is "".
func (c *Collector) Named(trace, name string) (out []Span) {
	for _, s := range c.Spans() {
		if s.Name == name && (trace == "" || s.Trace == trace) {
			out = append(out, s)
		}
	}
	return out
}

// Requests is how many there were.
func (c *Collector) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// Header is that of the last request.
func (c *Collector) Header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header
}

// Raw is all that was taken, as it came: to look for what must not be in it.
func (c *Collector) Raw() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.raw)
}
