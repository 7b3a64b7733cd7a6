package tracing_test

import (
	"context"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/tracing"
	"github.com/tallygate/tallygate/internal/run/tracing/collectortest"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// spanOf is a span with this number in its id.
func spanOf(n byte) tracing.Span {
	at := event.FromTime(time.Now())
	trace, _ := event.ParseTrace(traceparent)
	trace.Span[7] = n
	return tracing.Span{
		Trace: trace, Parent: trace.Span, Name: "test", Kind: tracing.Producer, Start: at - 1000, End: at,
		Attrs: []tracing.Attr{tracing.Text("text", "é"), tracing.Number("number", -1), tracing.Flag("flag", true), tracing.List("list", []string{"a", "b"})},
	}
}

// exporting is an Exporter that runs, and what it counts.
type exporting struct {
	*tracing.Exporter
	t    *testing.T
	reg  *prometheus.Registry
	log  testrun.Output
	stop func()
}

func export(t *testing.T, to string, change func(*tracing.Config)) *exporting {
	t.Helper()
	x := &exporting{t: t, reg: prometheus.NewRegistry()}
	cfg := tracing.Config{Endpoint: to + "/v1/traces", Service: "test", Linger: time.Millisecond, Registry: x.reg, Logger: x.log.Logger()}
	if change != nil {
		change(&cfg)
	}
	x.Exporter = tracing.New(cfg)
	x.stop = x.Start(t.Context())
	t.Cleanup(x.stop)
	return x
}

// counts are the spans with a result.
func (x *exporting) counts(result string) (n int) {
	families, err := x.reg.Gather()
	if err != nil {
		x.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if labelOf(m, "result") == result {
				n += int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func TestSpansArrive(t *testing.T) {
	c := collectortest.Start(t)
	x := export(t, c.URL, func(cfg *tracing.Config) {
		cfg.Version, cfg.Headers = "v1", map[string]string{"Authorization": "Bearer x"}
		cfg.Resource = map[string]string{"deployment.environment": "test"}
	})
	x.Send(spanOf(1))
	testrun.Eventually(t, "it arrives", func() bool { return x.counts("sent") == 1 })
	s := c.Spans()[0]
	if s.Service != "test" || s.Name != "test" || s.Trace != traceID || s.ID == "" || s.Kind != "SPAN_KIND_PRODUCER" || s.End.Sub(s.Start) != time.Millisecond {
		t.Errorf("%+v", s)
	}
	if a := s.Attrs; a["text"] != "é" || a["number"] != int64(-1) || a["flag"] != true || len(a["list"].([]string)) != 2 {
		t.Errorf("%v", a)
	}
	if got := c.Header().Get("Authorization"); got != "Bearer x" {
		t.Errorf("the credential is %q", got)
	}
}

// What was queued when the program ends is sent, also behind a full request.
func TestLastSpansAreSent(t *testing.T) {
	c := collectortest.Start(t)
	x := export(t, c.URL, func(cfg *tracing.Config) { cfg.Linger, cfg.Last = time.Hour, time.Minute })
	for n := range 700 {
		x.Send(spanOf(byte(n)))
	}
	x.stop()
	if got := len(c.Spans()); got != 700 || x.counts("sent") != 700 {
		t.Errorf("%d spans arrived", got)
	}
}

// A collector that is away for a moment gets the spans later; what it refuses for good is not sent again.
func TestAnswersOfTheCollector(t *testing.T) {
	c := collectortest.Start(t)
	x := export(t, c.URL, nil)
	busy := true
	c.Answer(func(w http.ResponseWriter) bool {
		if busy {
			busy = false
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	})
	x.Send(spanOf(1))
	testrun.Eventually(t, "it arrives", func() bool { return x.counts("sent") == 1 })
	if c.Requests() != 2 {
		t.Errorf("%d requests", c.Requests())
	}
	c.Answer(func(w http.ResponseWriter) bool {
		w.Header().Set("Location", c.URL+"/elsewhere") // with our credential
		w.WriteHeader(http.StatusPermanentRedirect)
		return true
	})
	x.Send(spanOf(2))
	testrun.Eventually(t, "it is refused", func() bool { return x.counts("refused") == 1 })
	// ExportTraceServiceResponse{partial_success: {rejected_spans: 1, error_message: "no"}}
	c.Answer(func(w http.ResponseWriter) bool {
		_, _ = w.Write([]byte{0x0a, 0x06, 0x08, 0x01, 0x12, 0x02, 'n', 'o'})
		return true
	})
	x.Send(spanOf(3))
	testrun.Eventually(t, "it is refused", func() bool { return x.counts("refused") == 2 })
	c.Answer(func(w http.ResponseWriter) bool { _, _ = w.Write([]byte("what?")); return true })
	x.Send(spanOf(4))
	testrun.Eventually(t, "it was taken", func() bool { return x.counts("sent") == 2 })
	if c.Requests() != 5 || !x.log.Has("refuses spans") || x.log.Has("Bearer") {
		t.Errorf("%d requests; the log: %s", c.Requests(), &x.log)
	}
}

// While the collector is away Send costs nothing, and what finds no room is counted.
func TestNobodyWaitsForTheCollector(t *testing.T) {
	c := collectortest.Start(t)
	hangs, goesOn := make(chan struct{}), make(chan struct{})
	c.Answer(func(http.ResponseWriter) bool {
		close(hangs)
		<-goesOn
		return false
	})
	x := export(t, c.URL, func(cfg *tracing.Config) { cfg.Queue = 10 })
	x.Send(spanOf(0))
	<-hangs
	span := spanOf(1)
	for range 100 {
		x.Send(span)
	}
	if n := testrun.Allocs(100, func() { x.Send(span) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := x.counts("queue_full"); n < 190 {
		t.Errorf("%d found no room", n)
	}
	close(goesOn)
	c.Answer(nil)
	testrun.Eventually(t, "the others arrive", func() bool { return x.counts("sent") == 11 })
}

// Nobody answers: the program ends all the same, and soon.
func TestNoCollector(t *testing.T) {
	x := export(t, "http://"+servers.FreeAddr(t), nil)
	x.Send(spanOf(1))
	x.stop() // which waits for no answer
	if x.counts("undelivered") == 0 {
		t.Error("none is lost")
	}
	if !x.log.Has("cannot be reached") {
		t.Errorf("the log: %s", &x.log)
	}
}

// Without a collector all of it is there, and does nothing.
func TestNilExporter(t *testing.T) {
	var x *tracing.Exporter
	x.Send(spanOf(1))
	x.Start(t.Context())()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestRead(t *testing.T) {
	for option, want := range map[string]string{
		"": "", "none": "", "otel:4318": "http://otel:4318/v1/traces", "https://otel:4318/": "https://otel:4318/v1/traces",
		"http://otel/custom": "http://otel/custom", "[::1]:4318": "http://[::1]:4318/v1/traces",
	} {
		g, err := tracing.Read(option, testrun.NoEnv)
		if err != nil || g.Endpoint != want {
			t.Errorf("%q: %q, %v", option, g.Endpoint, err)
		}
	}
	for _, option := range []string{"ftp://otel", "http://", "http://u:secret@otel", "http://otel:4318?x=1", "http://otel:", "://"} {
		if _, err := tracing.Read(option, testrun.NoEnv); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", option, err)
		}
	}
}

// The environment of OpenTelemetry, as other programs of the same pod have it.
func TestReadEnvironment(t *testing.T) {
	env := map[string]string{}
	read := func(option string) (tracing.Given, error) {
		return tracing.Read(option, testrun.Env(env))
	}
	env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://otel:4318/base/"
	env["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=Bearer%20x, tenant = a"
	env["OTEL_RESOURCE_ATTRIBUTES"] = "service.name=shop,zone=b"
	g, err := read("")
	if err != nil || g.Endpoint != "http://otel:4318/base/v1/traces" || g.Headers["authorization"] != "Bearer x" || g.Headers["tenant"] != "a" || g.Service != "shop" || len(g.Resource) != 1 {
		t.Errorf("%+v, %v", g, err)
	}
	if g, err := read("here:1"); err != nil || g.Endpoint != "http://here:1/v1/traces" || g.Headers["tenant"] != "a" {
		t.Errorf("%+v, %v", g, err)
	}
	if g, err := read("none"); err != nil || g.Endpoint != "" {
		t.Errorf("%+v, %v", g, err)
	}
	env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"], env["OTEL_SERVICE_NAME"] = "http://traces:1/x", "named"
	if g, err := read(""); err != nil || g.Endpoint != "http://traces:1/x" || g.Service != "named" {
		t.Errorf("%+v, %v", g, err)
	}
	env["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc"
	if g, err := read(""); err != nil || g.Endpoint != "" || g.Ignored == "" {
		t.Errorf("%+v, %v", g, err)
	}
	env["OTEL_SDK_DISABLED"] = "true"
	if g, err := read(""); err != nil || g.Ignored != "" {
		t.Errorf("%+v, %v", g, err)
	}
	env["OTEL_EXPORTER_OTLP_HEADERS"] = "a=secret%zz"
	if _, err := read("here:1"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

// A collector with an authority of one's own, by the files that the environment names.
func TestCollectorWithTLS(t *testing.T) {
	t.Parallel()
	var got atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"OTEL_EXPORTER_OTLP_CERTIFICATE": file}
	build := func() (*tracing.Exporter, error) {
		o := ops.NewOptions("test", "", io.Discard, testrun.Env(env))
		spans := tracing.NewOptions(o)
		if err := o.ParseOnly([]string{"--trace-otlp", s.URL}); err != nil {
			t.Fatal(err)
		}
		return spans.Build("test", "", nil, slog.New(slog.DiscardHandler))
	}
	x, err := build()
	if err != nil {
		t.Fatal(err)
	}
	stop := x.Start(t.Context())
	x.Send(spanOf(1))
	testrun.Eventually(t, "it reaches the collector", func() bool { return got.Load() == 1 })
	stop()
	env["OTEL_EXPORTER_OTLP_CERTIFICATE"] = file + ".none"
	if _, err := build(); err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_CERTIFICATE") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestEvery(t *testing.T) {
	for share, want := range map[float64]uint64{0: 0, 1: 1, 0.5: 2, 0.01: 100, 0.3: 3} {
		if n, err := tracing.Every(share); err != nil || n != want {
			t.Errorf("%v: %d, %v", share, n, err)
		}
	}
	for _, share := range []float64{-1, 1.1, 1e-12} {
		if _, err := tracing.Every(share); err == nil {
			t.Errorf("%v is accepted", share)
		}
	}
}
