package enforcer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
	"github.com/tallygate/tallygate/internal/run/tracing"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

const usage = `
enforcer is the decision server: it keeps the blocklist in memory and answers, for programs
that don't link the enforcer themselves and for proxies, whether someone may do something now.

  enforcer --redis redis:6379
  enforcer --version
  curl -s localhost:8080/v1/check -d '{"uid": "42", "api": "search.query"}'
`

// defaultMaxStaleness is more than the outage that a killed aggregator causes. Its partitions wait
// for the group's session timeout, 10 s, then for the rebalance, and for the new owners to read
// their state, a few seconds per million keys. Heartbeats report progress only when all partitions
// have owners again.
const defaultMaxStaleness = 30 * time.Second

// DefaultMaxWait bounds a throttled check's wait unless it is set.
const DefaultMaxWait = 5 * time.Second

// Command is cmd/enforcer: it returns the exit status. It has no client of Kafka: where events are to be emitted,
// enforcer-kafka runs in its place.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	return Kafka(nil).Command(ctx, args, stdout, stderr, getenv)
}

// Command is cmd/enforcer-kafka, if k is not nil.
func (k Kafka) Command(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // by default it ends the program at once, without a drain
	defer signal.Stop(hangup)
	if ops.WriteVersion(args, "enforcer", stdout) {
		return ops.ExitOK
	}
	e, err := k.parse(args, stdout, stderr, getenv)
	if errors.Is(err, errNoKafka) {
		err = handOver(args)
	}
	if err != nil {
		return ops.Exit(stderr, "enforcer", err)
	}
	e.Hangup = hangup
	return ops.Live(ctx, e.Log, "enforcer", e.about(), func(ctx context.Context) error {
		return errors.Join(e.Run(ctx), e.Redis.Close())
	})
}

// about returns what the log says about the program when it starts.
func (e *Program) about() []any {
	about := []any{"redis", e.RedisAccess.Addresses(), "prefix", e.Prefix, "shards", e.Shards}
	return append(about, e.listening()...)
}

func (e *Program) listening() []any {
	return ops.Listening(map[string]net.Listener{"listen": e.HTTP, "grpc_listen": e.GRPC, "metrics_listen": e.Metrics})
}

func (k Kafka) parse(args []string, stdout, stderr io.Writer, getenv func(string) string) (*Program, error) {
	o := ops.NewOptions("enforcer", usage, stdout, getenv)
	rds, logs, spans := redisconn.NewOptions(o, redisconn.Usual), o.Log(), tracing.NewOptions(o)
	e := &Program{}
	proxyOptions(o, &e.Config)
	answers := o.String("answers", "", "`FILE` in YAML with the responses to denied requests of proxies: status, type, title, messages, public names of rules; read at start")
	l := listenOptions(o)
	o.StringVar(&e.Prefix, "prefix", "tallygate", "`name` that the Redis keys begin with")
	instance, none := presenceOptions(o, l)
	o.IntVar(&e.Shards, "shards", 1, "`number` of shards of the blocklist, as the aggregators have it")
	o.DurationVar(&e.Config.MaxStaleness, "max-staleness", defaultMaxStaleness, "`time` that the blocklist may be behind before it is stale; must be more than the aggregators' --session-timeout plus a takeover")
	o.DurationVar(&e.DrainDelay, "drain-delay", 0, "`time` to keep answering after SIGTERM, while /readyz and gRPC's health report not ready, so that load balancers stop sending requests first")
	o.StringVar(&e.Snapshot, "snapshot", "", "`FILE` for a copy of the table, to enforce it after a start while Redis is away")
	o.StringVar(&e.Access.Tokens, "tokens", "", "`FILE` that gives roles to tokens and client certificates, as for the aggregator: listing the blocklist needs the role viewer, asking for permits service; reloaded when it changes")
	o.BoolVar(&e.Config.NoList, "no-blocklist", false, "don't serve /v1/blocklist")
	stale, permits := addOnStale(o, &e.OnStale), addAdmit(o, e)
	o.StringVar(&e.OffFile, "off-file", "", "`FILE` that turns enforcement off while it exists; so does TALLYGATE_ENFORCE=off")
	if err := o.ParseOnly(args); err != nil {
		return nil, err
	}
	var err, logErr error
	e.Log, logErr = logs.Build(stderr)
	e.Redis, err = rds.Build()
	e.RedisAccess = rds
	if err := errors.Join(logErr, err); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	e.Presence.Name, e.Presence.None = *instance, *none
	if *instance != "" {
		e.Log = e.Log.With("instance", *instance)
	}
	redisconn.LogTo(e.Log)
	e.Settings, e.Instance = o.Settings, *instance
	if err = e.Config.Headers.Validate(); err != nil {
		err = &ops.UsageError{Err: err}
	} else if e.Config.Answers, err = readAnswers(*answers); err != nil {
		err = &ops.UsageError{Err: err}
	} else if c := &e.Config; c.MaxWaiting < 1 || c.MaxWaitingPerKey < 1 {
		err = &ops.UsageError{Err: fmt.Errorf("--max-waiting %d, --max-waiting-per-key %d: want at least 1; with --max-wait 0 none waits", c.MaxWaiting, c.MaxWaitingPerKey)}
	} else if err = errors.Join(stale.build(), permits.build(k)); err == nil {
		err = l.open(e)
	}
	if err != nil {
		return nil, errors.Join(err, e.Redis.Close())
	}
	e.Registry = ops.NewRegistry("enforcer")
	if e.Spans, err = spans.Build("enforcer", *instance, e.Registry, e.Log); err != nil {
		return nil, errors.Join(err, e.Redis.Close())
	}
	return e, o.WatchCertificates(e.Registry)
}

// listeners are the options that say where and how the program is reached.
type listeners struct {
	http, grpc, metrics, advertise *string
	connections                    *int
	tls                            *ops.ServerTLSOptions
}

func listenOptions(o *ops.Options) *listeners {
	return &listeners{
		http:        o.String("listen", "127.0.0.1:8080", "HTTP API on `HOST:PORT` or unix:PATH: /v1/check, /v1/check/batch, /v1/admit, /v1/done, /v1/cancel, /v1/forward-auth, /v1/ext-authz/, /v1/blocklist, /v1/status, /healthz, /readyz"),
		grpc:        o.String("grpc-listen", "none", "gRPC on `HOST:PORT` or unix:PATH, such as 127.0.0.1:8082: Envoy's RateLimitService and ext_authz, health, reflection; none: no gRPC"),
		metrics:     o.String("metrics-listen", "127.0.0.1:9090", "Prometheus metrics on `HOST:PORT`, and /healthz, /readyz; keep it private"),
		connections: o.Int("max-connections", 10_000, "`number` of connections that each of --listen and --grpc-listen keeps open at once; idle ones (with gRPC: none) give way to new ones, further ones wait"),
		tls:         o.ServerTLS(),
	}
}

func (l *listeners) open(e *Program) error {
	e.Access.Listen, e.Access.Certificates = *l.http, l.tls.AsksClients()
	t, err := l.tls.Build(e.Log)
	if *l.connections < 1 || e.DrainDelay < 0 {
		err = errors.Join(err, fmt.Errorf("--max-connections %d, --drain-delay %v: want at least 1, and 0 or more", *l.connections, e.DrainDelay))
	}
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	if e.Metrics, err = ops.Listen("metrics-listen", *l.metrics); err != nil {
		return err
	}
	if e.HTTP, err = ops.Listen("listen", *l.http); err != nil {
		return err
	}
	if e.Presence.URL, err = reached(*l.advertise, e.HTTP, t != nil); err != nil {
		return &ops.UsageError{Err: errors.Join(err, e.HTTP.Close(), e.Metrics.Close())}
	}
	e.HTTP = ops.Guard(e.HTTP, *l.connections, t, "h2", "http/1.1")
	if *l.grpc == "none" {
		return nil
	}
	if e.GRPC, err = ops.Listen("grpc-listen", *l.grpc); err != nil {
		return err
	}
	e.GRPC = ops.Guard(e.GRPC, *l.connections, t, "h2")
	return nil
}

// proxyOptions adds the options for requests of proxies and for the answers to them, and for checks
// that wait.
func proxyOptions(o *ops.Options, c *decision.Config) {
	o.StringVar(&c.Headers.UID, "uid-header", "X-Tallygate-Uid", "`header` with the uid, for forward-auth; none: read no such header")
	o.StringVar(&c.Headers.IP, "ip-header", "X-Tallygate-Ip", "`header` with the client's address, for forward-auth; none: read no such header")
	o.StringVar(&c.Headers.API, "api-header", "X-Tallygate-Api", "`header` with the API, for forward-auth; without it the API is named after method and path; none: read no such header")
	o.StringVar(&c.Headers.AttrPrefix, "attr-prefix", "X-Tallygate-Attr-", "`prefix` of headers with attributes, for forward-auth; none: read no such headers")
	o.StringVar(&c.Headers.Method, "method-header", "", "`header` with the original method, for forward-auth (default: X-Forwarded-Method and X-Original-Method, which must agree); name the one that your proxy sets, then no other is read")
	o.StringVar(&c.Headers.Path, "path-header", "", "`header` with the original path, for forward-auth (default: X-Forwarded-Uri, X-Original-Uri and X-Original-Url, which must agree)")
	o.StringVar((*string)(&c.Headers.Repeated), "repeated-headers", "refuse", "which of several `values` of one of these headers counts: first, last, or refuse (none: the request is denied with 400)")
	o.Func("trusted-proxies", "`NETWORK,…` of your own proxies, such as 10.0.0.0/8: in a list of addresses they are skipped, so that none of them counts as a client", func(text string) (err error) {
		c.Headers.Proxies, err = httplimit.ParseProxies(text)
		return err
	})
	o.BoolVar(&c.RequireDimensions, "require-dimensions", false, "deny checks without any dimension (no uid, no address, no attribute) with 400; only verdicts on an API or on all could deny them")
	o.IntVar(&c.AllowStatus, "allow-status", http.StatusNoContent, "`status` by which forward-auth allows: 204 or 200")
	o.DurationVar(&c.MaxWait, "max-wait", DefaultMaxWait, "longest `time` that a throttled check waits for its turn, if it asks for that (wait in /v1/check); 0: none waits; at most 10s")
	o.IntVar(&c.MaxWaiting, "max-waiting", 1000, "`number` of checks that may wait at once; more are denied")
	o.IntVar(&c.MaxWaitingPerKey, "max-waiting-per-key", 100, "`number` of checks that may wait at once for one key and rule")
	c.Entries = o.Table("rls-entries", "`NAME=MEANING,…`: meanings of entries of rate limit descriptors whose names are not uid, ip, api, method, path or attrs.NAME")
}
