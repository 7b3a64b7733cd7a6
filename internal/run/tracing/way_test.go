package tracing_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/tracing/collectortest"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

const wayRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: way}
spec:
  rules:
    - {name: searches, match: {api: search.query}, limit: 3, per: 1h, window: tumbling, then: {block: 5m}}
    - {name: addresses, match: {api: search.query}, key: [ip], limit: 3, per: 1h, window: tumbling, then: {block: 5m}}
`

// way is the whole engine, with a service before it.
type way struct {
	t         *testing.T
	collector *collectortest.Collector
	brokers   string
	redis     string
	metrics   [2]string // addresses: of the aggregator, of the enforcer
	emitter   *emit.Emitter
	service   http.Handler
}

// startWay runs the programs on these servers.
func startWay(t *testing.T, brokers, redis, prefix string, collector *collectortest.Collector, more ...string) *way {
	t.Helper()
	w := &way{t: t, brokers: brokers, redis: redis, collector: collector}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(wayRules), 0o600); err != nil {
		t.Fatal(err)
	}
	both := []string{"--redis", redis, "--prefix", prefix, "--log-level", "warn", "--trace-otlp", collector.URL, "--listen", "127.0.0.1:0"}
	w.metrics = [2]string{servers.FreeAddr(t), servers.FreeAddr(t)}
	w.program("aggregator", aggregator.Command, append([]string{"--kafka", brokers, "--rules", rules, "--partitions", "4", "--metrics-listen", w.metrics[0]}, slices.Concat(both, more)...))
	w.program("enforcer", enforcer.Command, append([]string{"--grpc-listen", "none", "--metrics-listen", w.metrics[1]}, both...))
	var err error
	w.emitter, err = emit.New(emit.Config{Brokers: strings.Split(brokers, ","), Prefix: prefix, TracesPerSecond: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.emitter.Close(context.WithoutCancel(t.Context())) })
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := httplimit.NewGate(table, httplimit.Options{
		UID: httplimit.Header("X-User"), IP: httplimit.Header("X-Address"), API: func(*http.Request) string { return "search.query" }, Events: w.emitter, Trace: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.service = gate.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return w
}

// program runs one until the test ends, and waits until it is ready.
func (w *way) program(name string, command func(context.Context, []string, io.Writer, io.Writer, func(string) string) int, args []string) {
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var running sync.WaitGroup
	var log testrun.Output
	w.t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() {
		if status := command(ctx, args, io.Discard, &log, testrun.NoEnv); status != 0 {
			w.t.Errorf("the %s ends with %d", name, status)
		}
		if log.Has("u-7391") {
			w.t.Errorf("the log of the %s has the uid", name)
		}
	})
	at := args[slices.Index(args, "--metrics-listen")+1]
	testrun.Eventually(w.t, "the "+name+" is ready", func() bool { return get(at, "/readyz", "") != "" })
}

// get returns what a program answers with 200; "" for another status.
func get(at, path, accept string) string {
	r, err := http.NewRequest(http.MethodGet, "http://"+at+path, nil)
	if err != nil {
		return ""
	}
	r.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

// request sends a request to the service. Its user and address are the test's; traceparent may be "".
func (w *way) request(traceparent string) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-User", "u-7391")
	r.Header.Set("X-Address", "192.0.2.1")
	if traceparent != "" {
		r.Header.Set("traceparent", traceparent)
	}
	w.service.ServeHTTP(httptest.NewRecorder(), r)
}

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	requestSpan = "00f067aa0ba902b7"
	traceparent = "00-" + traceID + "-" + requestSpan + "-01"
)

// testWay sends the event that brings a user and an address over their limits with a trace context, and
// expects its spans: one of the two keys is another partition's than the event's.
func testWay(w *way) {
	t := w.t
	for range 3 {
		w.request("")
	}
	w.request(traceparent)
	testrun.Eventually(t, "both blocks are in force", func() bool { return len(w.collector.Named(traceID, "tallygate.enforced")) == 2 })
	byRule := func(name string) map[string]collectortest.Span {
		out := map[string]collectortest.Span{}
		for _, s := range w.collector.Named(traceID, name) {
			rule, _ := s.Attrs["tallygate.rule"].(string)
			if rules, ok := s.Attrs["tallygate.rules"].([]string); ok {
				rule = strings.Join(rules, ",")
			}
			out[rule] = s
		}
		return out
	}
	testrun.Eventually(t, "their other spans came, too", func() bool {
		return len(byRule("tallygate.count")) == 2 && len(byRule("tallygate.verdict")) == 2
	})
	counts, verdicts, enforced := byRule("tallygate.count"), byRule("tallygate.verdict"), byRule("tallygate.enforced")
	for _, rule := range []string{"searches", "addresses"} {
		c, v, e := counts[rule], verdicts[rule], enforced[rule]
		if c.Parent != requestSpan || v.Parent != c.ID || e.Parent != v.ID || c.ID == "" || v.ID == "" {
			t.Errorf("%s: parents: %q of count, %q of verdict, %q of enforced; ids %q, %q", rule, c.Parent, v.Parent, e.Parent, c.ID, v.ID)
		}
		if c.Attrs["tallygate.result"] != "counted" || c.Attrs["messaging.destination.name"] == "" || c.Attrs["messaging.destination.partition.id"] == "" {
			t.Errorf("%s: count: %v", rule, c.Attrs)
		}
		if v.Attrs["tallygate.state"] != "block" || v.Attrs["tallygate.mode"] != "enforce" || !slices.Equal(v.Moments, []string{"durable"}) {
			t.Errorf("%s: verdict: %v, %v", rule, v.Attrs, v.Moments)
		}
		if e.Attrs["tallygate.action"] != "block" || e.Attrs["tallygate.seq"] != v.Attrs["tallygate.seq"] {
			t.Errorf("%s: enforced: %v", rule, e.Attrs)
		}
		for _, s := range []collectortest.Span{c, v, e} {
			if s.End.Before(s.Start) {
				t.Errorf("%s: %s ends before it starts", rule, s.Name)
			}
		}
	}
	if c, v, e := counts["searches"].Service, verdicts["searches"].Service, enforced["searches"].Service; c != "tallygate-aggregator" || v != c || e != "tallygate-enforcer" {
		t.Errorf("services: %s, %s, %s", c, v, e)
	}
	if counts["searches"].Attrs["tallygate.forwarded"] != false || counts["addresses"].Attrs["tallygate.forwarded"] != true {
		t.Errorf("forwarded: %v, %v", counts["searches"].Attrs, counts["addresses"].Attrs)
	}
	if a, b := counts["searches"], counts["addresses"]; a.Attrs["messaging.kafka.offset"] != b.Attrs["messaging.kafka.offset"] {
		t.Errorf("one event has two offsets: %v, %v", a.Attrs, b.Attrs)
	}
	for _, secret := range []string{"u-7391", "192.0.2.1"} {
		if strings.Contains(w.collector.Raw(), secret) {
			t.Errorf("%s is in a span", secret)
		}
	}
	for _, s := range w.collector.Spans() {
		if s.Trace != traceID {
			t.Errorf("a span of another trace: %+v", s)
		}
	}
}

// One request's trace, from the service to the enforcer.
func TestWay(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.Close)
	w := startWay(t, stack.Kafka[0], stack.Redis, "way", collectortest.Start(t))
	testWay(w)
	w.exemplars()
}

// The same on a real Kafka and a real Redis.
func TestWayOnServers(t *testing.T) {
	brokers, redis, prefix := servers.Kafka(t), servers.Redis(t), servers.Name(t)
	servers.DropTopics(t, brokers, prefix)
	w := startWay(t, strings.Join(brokers, ","), redis, prefix, collectortest.Start(t))
	testWay(w)
	w.exemplars()
}

// With --trace-sample verdicts whose events have no context begin traces, from the event on.
func TestSampledVerdicts(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.Close)
	w := startWay(t, stack.Kafka[0], stack.Redis, "sampled", collectortest.Start(t), "--trace-sample", "1")
	for range 4 {
		w.request("")
	}
	testrun.Eventually(t, "both blocks are in force, and all of it is told", func() bool {
		return len(w.collector.Named("", "tallygate.enforced")) == 2 && len(w.collector.Named("", "tallygate.verdict")) == 2 && len(w.collector.Named("", "tallygate.count")) == 2
	})
	spans := map[string]collectortest.Span{}
	for _, s := range w.collector.Spans() {
		spans[s.ID] = s
	}
	for _, e := range w.collector.Named("", "tallygate.enforced") {
		v := spans[e.Parent]
		c := spans[v.Parent]
		if v.Name != "tallygate.verdict" || c.Name != "tallygate.count" || c.Parent != "" || c.Trace != e.Trace || v.Trace != e.Trace {
			t.Errorf("%+v below %+v below %+v", e, v, c)
		}
	}
}

// Where the collector is away, verdicts are issued and enforced as ever, and spans are lost and counted.
func TestWayWithoutACollector(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.Close)
	w := startWay(t, stack.Kafka[0], stack.Redis, "away", &collectortest.Collector{URL: "http://" + servers.FreeAddr(t)})
	for range 4 {
		w.request(traceparent)
	}
	testrun.Eventually(t, "both blocks are in force", func() bool {
		return strings.Contains(get(w.metrics[1], "/metrics", "text/plain"), "tallygate_event_to_enforced_seconds_count 2\n")
	})
}

// exemplars expects that the histograms of both programs lead to the trace, for those who ask for
// OpenMetrics, and are what they were for others.
func (w *way) exemplars() {
	for at, name := range map[string]string{w.metrics[0]: "tallygate_event_to_verdict_seconds", w.metrics[1]: "tallygate_event_to_enforced_seconds"} {
		open := get(at, "/metrics", "application/openmetrics-text; version=1.0.0")
		if !strings.HasSuffix(open, "# EOF\n") {
			w.t.Error("the answer is not OpenMetrics")
		}
		found := false
		for line := range strings.Lines(open) {
			found = found || strings.HasPrefix(line, name+"_bucket") && strings.Contains(line, fmt.Sprintf("# {trace_id=%q}", traceID))
		}
		if !found {
			w.t.Errorf("%s has no exemplar", name)
		}
		plain := get(at, "/metrics", "text/plain")
		if !strings.Contains(plain, name+"_count 2\n") || strings.Contains(plain, traceID) {
			w.t.Errorf("%s in the old format is not what it was", name)
		}
		if !bytes.Contains([]byte(plain), []byte(`tallygate_trace_spans_total{result="sent"}`)) {
			w.t.Error("spans are not counted")
		}
	}
}
