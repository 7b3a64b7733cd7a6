package tallygate_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	tallygate "github.com/tallygate/tallygate/adapters/otel"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/tracing/collectortest"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

const rules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: otel}
spec:
  rules:
    - {name: searches, match: {api: search.query}, limit: 1, per: 1h, window: tumbling, then: {block: 5m}}
`

// aggregate runs an aggregator, and returns when it is ready.
func aggregate(t *testing.T, stack *devstack.Stack, collector string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(t, 1)[0])
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() {
		args := []string{"--kafka", stack.Kafka[0], "--redis", stack.Redis, "--rules", file, "--partitions", "2", "--listen", addr, "--metrics-listen", "127.0.0.1:0",
			"--log-level", "error", "--trace-otlp", collector}
		if status := aggregator.Command(ctx, args, io.Discard, io.Discard, func(string) string { return "" }); status != 0 {
			t.Errorf("the aggregator ends with %d", status)
		}
	})
	testrun.Eventually(t, "the aggregator is ready", func() bool {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// service is a handler whose requests are emitted, with a table that follows the blocklist.
func service(t *testing.T, stack *devstack.Stack, spans *tallygate.Spans) http.Handler {
	t.Helper()
	emitter, err := emit.New(spans.Emitter(emit.Config{Brokers: stack.Kafka}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = emitter.Close(context.WithoutCancel(t.Context())) })
	table, err := enforce.NewTable(enforce.Config{Traced: spans.Enforced})
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: stack.Redis})
	t.Cleanup(func() { _ = client.Close() })
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: client})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, func(ctx context.Context) error { return feed.Run(ctx, table) })
	if err := table.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return httplimit.Middleware(table, httplimit.Options{
		UID: httplimit.Header("X-User"), API: func(*http.Request) string { return "search.query" }, Events: emitter, Event: spans.Event,
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// One trace has the request, its event, that it was counted, its verdict, and where that is in force.
func TestOneTrace(t *testing.T) {
	stack, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.Close)
	collector, own := collectortest.Start(t), tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(own))
	aggregate(t, stack, collector.URL)
	handler := service(t, stack, tallygate.New(provider))
	request := func(ctx context.Context) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.Header.Set("X-User", "u-7391")
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	request(t.Context())
	ctx, root := provider.Tracer("test").Start(t.Context(), "GET /search")
	request(ctx)
	root.End()
	named := func(name string) (out tracetest.SpanStub) {
		for _, s := range own.GetSpans() {
			if s.Name == name {
				out = s
			}
		}
		return out
	}
	testrun.Eventually(t, "the block is in force here", func() bool { return named("tallygate.enforced").Name != "" })
	id := root.SpanContext().TraceID().String()
	testrun.Eventually(t, "the aggregator's spans came", func() bool {
		return len(collector.Named(id, "tallygate.count")) == 1 && len(collector.Named(id, "tallygate.verdict")) == 1
	})
	emitted, enforced := named("tallygate.emit"), named("tallygate.enforced")
	count, verdict := collector.Named(id, "tallygate.count")[0], collector.Named(id, "tallygate.verdict")[0]
	for what, ids := range map[string][2]string{
		"emit":     {emitted.Parent.SpanID().String(), root.SpanContext().SpanID().String()},
		"count":    {count.Parent, emitted.SpanContext.SpanID().String()},
		"verdict":  {verdict.Parent, count.ID},
		"enforced": {enforced.Parent.SpanID().String(), verdict.ID},
	} {
		if ids[0] != ids[1] {
			t.Errorf("%s is below %s, want %s", what, ids[0], ids[1])
		}
	}
	if enforced.SpanContext.TraceID() != root.SpanContext().TraceID() || emitted.SpanKind != trace.SpanKindProducer {
		t.Errorf("%+v", enforced.SpanContext)
	}
	if text := collector.Raw() + fmt.Sprintf("%+v", own.GetSpans()); strings.Contains(text, "u-7391") {
		t.Error("a span has the uid")
	}
	if n := len(own.GetSpans()); n != 3 {
		t.Errorf("%d spans of the service, want those of the request, its event and the block", n)
	}
}

// Spans of events that are dropped, or sent without their context, end and say so. What is not sampled has none.
func TestEventsThatAreNotTraced(t *testing.T) {
	own := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(own))
	spans, told := tallygate.New(provider), 0
	emitter, err := emit.New(spans.Emitter(emit.Config{Brokers: []string{"127.0.0.1:1"}, MaxEvents: 1, TracesPerSecond: 1, Traced: func(event.Trace, error) { told++ }}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, root := provider.Tracer("test").Start(t.Context(), "request")
	for range 2 { // one is queued, and one is too much
		e := event.Event{UID: "u", API: "a"}
		spans.Start(ctx, &e)
		emitter.Emit(e)
	}
	untraced := event.Event{UID: "u", API: "a"}
	spans.Start(t.Context(), &untraced)
	if !untraced.Trace.IsZero() {
		t.Error("it has a context from nowhere")
	}
	root.End()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = emitter.Close(over) // it is not delivered
	failed := 0
	for _, s := range own.GetSpans() {
		if s.Name == "tallygate.emit" && s.Status.Code == codes.Error {
			failed++
		}
	}
	if failed != 2 || told != 2 {
		t.Errorf("%d spans failed, and %d were told", failed, told)
	}
}
