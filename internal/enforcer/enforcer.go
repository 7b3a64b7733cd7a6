// Package enforcer is the enforcer program as a function: cmd/enforcer and `tallygate dev`
// run it.
package enforcer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/internal/decision"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Program is the enforcer: a table in step with the blocklist, and the decision
// server on it.
type Program struct {
	Config   decision.Config // Table is made by Run
	Redis    redis.UniversalClient
	Prefix   string
	Shards   int
	HTTP     net.Listener
	Metrics  net.Listener // nil: none
	Registry *prometheus.Registry
	Log      *slog.Logger
}

// Run works until ctx ends.
func (e *Program) Run(ctx context.Context) error {
	table, err := enforce.NewTable(enforce.Config{Shards: e.Shards})
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: e.Redis, Prefix: e.Prefix, Shards: e.Shards, Logger: e.Log})
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	e.Config.Table, e.Config.Registry = table, e.Registry
	server, err := decision.New(e.Config)
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	mux := http.NewServeMux()
	ops.Health(mux, server.Ready)
	server.Routes(mux)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ops.UnlessEnded(ctx, table.Run(ctx)) })
	g.Go(func() error { return ops.UnlessEnded(ctx, feed.Run(ctx, table)) })
	g.Go(func() error { return ops.Serve(ctx, e.HTTP, mux) })
	if e.Metrics != nil {
		g.Go(func() error { return ops.Serve(ctx, e.Metrics, ops.MetricsHandler(e.Registry)) })
	}
	return g.Wait()
}

const usage = `
enforcer is the decision server: it keeps the blocklist in memory and answers, for programs
that don't link the enforcer themselves and for proxies, whether someone may do something now.

  enforcer --redis redis:6379
  curl -s localhost:8080/v1/check -d '{"uid": "42", "api": "search.query"}'
`

// Command is cmd/enforcer: it returns the exit status.
func Command(ctx context.Context, args []string, stderr io.Writer, getenv func(string) string) int {
	e, err := parse(args, stderr, getenv)
	if err == nil {
		err = errors.Join(e.Run(ctx), e.Redis.Close())
	}
	return ops.Exit(stderr, "enforcer", err)
}

func parse(args []string, stderr io.Writer, getenv func(string) string) (*Program, error) {
	o := ops.NewOptions("enforcer", usage, stderr, getenv)
	rds, logs := o.Redis("127.0.0.1:6379"), o.Log()
	e := &Program{}
	c := &e.Config
	listen := o.String("listen", "127.0.0.1:8080", "HTTP API on `HOST:PORT`: /v1/check, /v1/check/batch, /v1/forward-auth, /v1/blocklist, /healthz, /readyz")
	metrics := o.String("metrics-listen", "127.0.0.1:9090", "Prometheus metrics on `HOST:PORT`; keep it private")
	o.StringVar(&e.Prefix, "prefix", "tallygate", "`name` that the Redis keys begin with")
	o.IntVar(&e.Shards, "shards", 1, "`number` of shards of the blocklist, as the aggregators have it")
	o.DurationVar(&c.MaxStaleness, "max-staleness", 10*time.Second, "`time` that the blocklist may be behind before /readyz says so")
	o.StringVar(&c.UIDHeader, "uid-header", "X-Tallygate-Uid", "`header` with the uid, for forward-auth")
	o.StringVar(&c.IPHeader, "ip-header", "X-Tallygate-Ip", "`header` with the client's address, for forward-auth")
	o.StringVar(&c.APIHeader, "api-header", "X-Tallygate-Api", "`header` with the API, for forward-auth; without it the API is method and path")
	o.StringVar(&c.AttrPrefix, "attr-prefix", "X-Tallygate-Attr-", "`prefix` of headers with attributes, for forward-auth")
	o.IntVar(&c.AllowStatus, "allow-status", http.StatusNoContent, "`status` by which forward-auth lets through: 204 or 200")
	if err := o.Parse(args); err != nil {
		return nil, err
	}
	var err, lerr error
	e.Log, lerr = logs.Build(stderr)
	e.Redis, err = rds.Build()
	if err := errors.Join(lerr, err); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	if e.HTTP, err = ops.Listen("listen", *listen); err != nil {
		return nil, err
	}
	if e.Metrics, err = ops.Listen("metrics-listen", *metrics); err != nil {
		return nil, err
	}
	e.Registry = ops.NewRegistry("enforcer")
	return e, nil
}
