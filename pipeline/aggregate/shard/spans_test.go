package shard

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/verdict"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// spanRig is one shard that counts by two limits, of the only partition.
type spanRig struct {
	t     *testing.T
	s     *Shard
	clock Clock
	next  int64
}

func newSpanRig(t *testing.T, cfg Config) *spanRig {
	t.Helper()
	cfg.Of, cfg.Topics = 1, simTopics
	at := now()
	set := compile(t, `
  rules:
    - {name: users, match: {api: a}, limit: 1, per: 1h, window: tumbling, then: {block: 1h}}
    - {name: all, key: all, match: {api: a}, limit: 100, per: 1h, window: tumbling, then: {block: 1h}}`)
	return &spanRig{t: t, s: New(cfg, Rules{Set: set}), clock: Clock{Local: at, Broker: at}}
}

// record takes in a record, and makes its verdicts durable and published.
func (r *spanRig) record(value string, headers ...string) Effects {
	r.t.Helper()
	pairs := make([][]byte, len(headers))
	for i, h := range headers {
		pairs[i] = []byte(h)
	}
	rec := record.Record{Offset: r.next, Timestamp: r.clock.Broker.Time().UnixMilli() - 5, Value: []byte(value), Headers: record.HeadersOf(pairs...)}
	r.next++
	r.s.Effects().Reset()
	if err := r.s.Record(Input, &rec, r.clock); err != nil {
		r.t.Fatal(err)
	}
	if err := r.s.Step(Input, r.next, r.clock); err != nil {
		r.t.Fatal(err)
	}
	for _, a := range append([]Append(nil), r.s.log.out.States...) {
		if a.Ack != nil {
			r.s.Acked(a.Ack, 100+r.next, Clock{Local: r.clock.Local + 1000, Broker: r.clock.Broker})
		}
	}
	for _, a := range append([]Append(nil), r.s.log.out.Verdicts...) {
		r.s.Acked(a.Ack, 200+r.next, Clock{Local: r.clock.Local + 2000, Broker: r.clock.Broker})
	}
	return *r.s.Effects()
}

const ofU1 = `{"uid":"u1","api":"a"}`

// What a traced event came to on its keys is told, below its own span; its verdict is below that of its key.
func TestSpansOfAnEvent(t *testing.T) {
	r := newSpanRig(t, Config{Spans: true})
	r.record(ofU1)
	e := r.record(ofU1, "x", "y", "traceparent", traceparent)
	parent, _ := event.ParseTrace(traceparent)
	if len(e.Counted) != 2 || len(e.Published) != 1 {
		t.Fatalf("%d spans of events, %d verdicts", len(e.Counted), len(e.Published))
	}
	seen := map[event.Trace]bool{}
	for _, c := range e.Counted {
		if c.Trace.ID != parent.ID || c.Parent != parent.Span || c.Result != "counted" || c.Offset != 1 || c.Forwarded || c.At != r.clock.Local || c.Broker >= c.At || len(c.Limits) != 1 {
			t.Errorf("%+v", c)
		}
		seen[c.Trace] = true
	}
	p := e.Published[0]
	if len(seen) != 2 || p.Traced == nil || !seen[p.Traced.Counted] || p.Verdict.Trace.ID != parent.ID || seen[p.Verdict.Trace] {
		t.Fatalf("%+v below %v", p.Verdict, p.Traced)
	}
	if p.Traced.At != r.clock.Local || p.Traced.Durable != r.clock.Local+1000 || p.At != r.clock.Local+2000 {
		t.Errorf("%+v, published at %v", p.Traced, p.At)
	}
	if v, err := verdict.Parse(p.Value); err != nil || v.Trace != p.Verdict.Trace {
		t.Errorf("the record has %v: %v", v.Trace, err)
	}
}

// An event that counts nowhere is told of, too: whoever looks for its trace asks why.
func TestSpansOfEventsThatDoNotCount(t *testing.T) {
	r := newSpanRig(t, Config{Spans: true})
	old := `{"uid":"u1","api":"a","time":"2001-01-01T00:00:00Z"}`
	for value, want := range map[string]string{
		`{"uid":"u1","api":"other"}`: "[unmatched]", old: "[too_old]", ofU1: "[counted counted]",
		`[` + ofU1 + `,{"uid":"u1","api":"other"}]`: "[unmatched counted counted]",
	} {
		var got []string
		for _, c := range r.record(value, "traceparent", traceparent).Counted {
			got = append(got, c.Result)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", value, got, want)
		}
	}
}

// Without a sampled context, and where nobody wants spans, there are none.
func TestNoSpans(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg    Config
		header string
	}{
		"not wanted":  {Config{}, traceparent},
		"not sampled": {Config{Spans: true}, traceparent[:len(traceparent)-1] + "0"},
		"malformed":   {Config{Spans: true}, "traceparent"},
	} {
		r := newSpanRig(t, tt.cfg)
		r.record(ofU1, "traceparent", tt.header)
		e := r.record(ofU1, "traceparent", tt.header)
		if len(e.Published) != 1 || len(e.Counted) > 0 || e.Published[0].Traced != nil || !e.Published[0].Verdict.Trace.IsZero() {
			t.Errorf("%s: %d spans; %+v", name, len(e.Counted), e.Published)
		}
	}
}

// One of so many verdicts without a context begins a trace, of random bits by the shard's seed.
func TestVerdictsBeginTraces(t *testing.T) {
	const keys, every = 600, 3
	r := newSpanRig(t, Config{Spans: true, SpanEvery: every, Seed: 7})
	traces := map[[16]byte]bool{}
	for n := range keys {
		value := fmt.Sprintf(`{"uid":"u%d","api":"a"}`, n)
		r.record(value)
		e := r.record(value)
		for _, p := range e.Published {
			if p.Traced != nil && p.Verdict.Rule == "users" {
				if len(e.Counted) == 0 || e.Counted[0].Parent != [8]byte{} || e.Counted[0].Trace != p.Traced.Counted || p.Verdict.Trace.ID[0]|p.Verdict.Trace.ID[8] == 0 && p.Verdict.Trace.ID[1] == 0 {
					t.Fatalf("%+v, %+v", e.Counted, p.Traced)
				}
				traces[p.Verdict.Trace.ID] = true
			}
		}
	}
	if n := len(traces); n < keys/every*7/10 || n > keys/every*13/10 {
		t.Errorf("%d of %d verdicts began a trace, want one of %d", n, keys, every)
	}
}

// Whoever counts an event again after a crash makes the same spans.
func TestSpansAreTheSameAgain(t *testing.T) {
	spans := func() (out []event.Trace) {
		r := newSpanRig(t, Config{Spans: true})
		r.record(ofU1)
		for _, c := range r.record(ofU1, "traceparent", traceparent).Counted {
			out = append(out, c.Trace)
		}
		return out
	}
	if a, b := spans(), spans(); fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("%v, and then %v", a, b)
	}
}

// A record without a context costs no memory where spans are wanted, and none with one where they are not.
func TestSpansCostNothingWithoutContexts(t *testing.T) {
	for _, spans := range []bool{false, true} {
		r := newSpanRig(t, Config{Spans: spans})
		pairs := [][]byte{[]byte("tg-c"), []byte("shop")}
		if !spans {
			pairs = append(pairs, []byte("traceparent"), []byte(traceparent))
		}
		rec := record.Record{Timestamp: r.clock.Broker.Time().UnixMilli(), Value: []byte(`{"uid":"u1","api":"other"}`), Headers: record.HeadersOf(pairs...)}
		if n := testrun.Allocs(100, func() { r.s.intake.spans.of(&rec) }); n != 0 {
			t.Errorf("wanted: %v: %v allocations", spans, n)
		}
	}
}
