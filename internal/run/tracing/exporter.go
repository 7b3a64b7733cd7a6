package tracing

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"

	"github.com/tallygate/tallygate/internal/base/logonce"
	"github.com/tallygate/tallygate/internal/base/retry"
)

// Config names the collector of spans. Endpoint and Service are required.
type Config struct {
	Endpoint string            // the URL that they are posted to, with its path
	Headers  map[string]string // of the requests, such as a credential
	Service  string            // service.name
	Version  string            // service.version
	Instance string            // service.instance.id; "" is not told
	Resource map[string]string // more attributes of the resource; they replace those above

	// Transport sends the requests; nil is one that trusts the system's authorities.
	Transport http.RoundTripper

	// Queue bounds the spans that wait; more are dropped. 0 is 4,096.
	Queue int
	// Linger bounds a span's wait for others before it is sent; 0 is 1 s.
	Linger time.Duration
	// Last bounds the time for the last spans when the program ends; 0 is 1 s.
	Last time.Duration
	// Timeout is that of a request; 0 is 10 s.
	Timeout time.Duration

	Registry prometheus.Registerer // nil registers no metrics
	Logger   *slog.Logger          // nil is slog.Default()
}

const (
	maxBatch = 512 // spans in a request

	minBackoff, maxBackoff = 500 * time.Millisecond, 5 * time.Second

	// maxAttempts bounds what a batch waits for a collector that is away: spans that queue behind it are
	// newer, and worth more.
	maxAttempts = 4
)

// Exporter sends spans in the background. Make it with New, and call Run. Its methods may be called by
// many goroutines. A nil Exporter drops all spans.
type Exporter struct {
	cfg      Config
	resource *resourcepb.Resource
	client   *http.Client
	queue    chan Span
	results  results
	failures logonce.Line
}

// results count spans by their fate.
type results struct{ sent, queueFull, refused, undelivered prometheus.Counter }

// New returns an Exporter.
func New(cfg Config) *Exporter {
	cfg.Queue, cfg.Linger, cfg.Timeout = cmp.Or(cfg.Queue, 4096), cmp.Or(cfg.Linger, time.Second), cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.Last, cfg.Logger = cmp.Or(cfg.Last, time.Second), cmp.Or(cfg.Logger, slog.Default())
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tallygate_trace_spans_total", Help: "Spans for the collector of traces, by what became of them."}, []string{"result"})
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(counts)
	}
	if cfg.Transport == nil {
		cfg.Transport = baseTransport()
	}
	return &Exporter{
		cfg: cfg, resource: cfg.resource(), queue: make(chan Span, cfg.Queue),
		client: &http.Client{Transport: cfg.Transport, Timeout: cfg.Timeout, CheckRedirect: stay},
		results: results{
			sent: counts.WithLabelValues("sent"), queueFull: counts.WithLabelValues("queue_full"),
			refused: counts.WithLabelValues("refused"), undelivered: counts.WithLabelValues("undelivered"),
		},
	}
}

func baseTransport() *http.Transport {
	return &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true}
}

// stay follows no redirect: the headers may have a credential, which is for this host.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (c *Config) resource() *resourcepb.Resource {
	all := map[string]string{"service.name": c.Service, "service.version": c.Version, "service.instance.id": c.Instance}
	for k, v := range c.Resource {
		all[k] = v
	}
	var attrs []Attr
	for k, v := range all {
		if v != "" {
			attrs = append(attrs, Text(k, v))
		}
	}
	return &resourcepb.Resource{Attributes: keyValues(attrs)}
}

// Send queues a span, and never blocks: while the queue is full it is dropped, and counted.
func (e *Exporter) Send(s Span) {
	if e == nil {
		return
	}
	select {
	case e.queue <- s:
	default:
		e.results.queueFull.Inc()
	}
}

// Run sends until ctx ends, and then what is queued, within Config.Last. It returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	if e == nil {
		<-ctx.Done()
		return nil
	}
	defer e.client.CloseIdleConnections()
	for {
		select {
		case first := <-e.queue:
			e.deliver(ctx, e.gather(ctx, first))
		case <-ctx.Done():
			e.last()
			return nil
		}
	}
}

// Start runs the exporter in the background. stop, to be called when nothing sends any more, sends what is
// queued and waits for the end: so spans of a program's last moments are sent, too.
func (e *Exporter) Start(ctx context.Context) (stop func()) {
	if e == nil {
		return func() {}
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.Run(ctx) // it never fails
	}()
	return func() {
		end()
		<-done
	}
}

// gather waits for more spans: until a request is full, Linger has passed, or ctx ends.
func (e *Exporter) gather(ctx context.Context, first Span) []Span {
	batch := append(make([]Span, 0, 16), first)
	linger := time.NewTimer(e.cfg.Linger)
	defer linger.Stop()
	for len(batch) < maxBatch {
		select {
		case s := <-e.queue:
			batch = append(batch, s)
		case <-linger.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// last sends what is queued.
func (e *Exporter) last() {
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.Last)
	defer cancel()
	for {
		select {
		case first := <-e.queue:
			gone, now := context.WithCancel(ctx)
			now() // those that are there: none is waited for
			e.attempt(ctx, e.gather(gone, first), true)
		default:
			return
		}
	}
}

// deliver sends a batch, several times if need be.
func (e *Exporter) deliver(ctx context.Context, batch []Span) {
	pause := retry.Backoff{Min: minBackoff, Max: maxBackoff, Spread: true}
	// A request that has begun is not cut short by the program's end, but it is bounded then.
	bounded, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(e.cfg.Last, cancel) })()
	for n := 1; ; n++ {
		if e.attempt(bounded, batch, n == maxAttempts) || n == maxAttempts {
			return
		}
		if !pause.Wait(ctx) {
			e.attempt(bounded, batch, true)
			return
		}
	}
}

// attempt reports whether the batch is settled. After the last attempt it is dropped.
func (e *Exporter) attempt(ctx context.Context, batch []Span, final bool) (settled bool) {
	answer, err := e.post(ctx, batch)
	n := float64(len(batch))
	switch {
	case err == nil:
		e.results.sent.Add(n - float64(answer.rejected))
		e.results.refused.Add(float64(answer.rejected))
		if answer.rejected > 0 {
			e.warn("the collector of traces refuses spans", "error", answer.message)
		}
		return true
	case answer.refused:
		e.results.refused.Add(n)
		e.warn("the collector of traces refuses spans", "error", err)
		return true
	}
	if final {
		e.results.undelivered.Add(n)
		e.warn("the collector of traces cannot be reached; spans are dropped, and nothing else is delayed", "error", err)
	}
	return final
}

func (e *Exporter) warn(message string, args ...any) {
	if leftOut, due := e.failures.Due(); due {
		e.cfg.Logger.Warn(message, append(args, "left_out", leftOut)...)
	}
}
