package enforcer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tallygate/tallygate/internal/ops"
)

const usage = `
enforcer is the decision server: it keeps the blocklist in memory and answers, for programs
that don't link the enforcer themselves and for proxies, whether someone may do something now.

  enforcer --redis redis:6379
  curl -s localhost:8080/v1/check -d '{"uid": "42", "api": "search.query"}'
`

// Command is cmd/enforcer: it returns the exit status.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	e, err := parse(args, stdout, stderr, getenv)
	if err == nil {
		err = errors.Join(e.Run(ctx), e.Redis.Close())
	}
	return ops.Exit(stderr, "enforcer", err)
}

func parse(args []string, stdout, stderr io.Writer, getenv func(string) string) (*Program, error) {
	o := ops.NewOptions("enforcer", usage, stdout, getenv)
	rds, logs := o.Redis("127.0.0.1:6379"), o.Log()
	e := &Program{}
	c := &e.Config
	listen := o.String("listen", "127.0.0.1:8080", "HTTP API on `HOST:PORT`: /v1/check, /v1/check/batch, /v1/forward-auth, /v1/blocklist, /healthz, /readyz")
	metrics := o.String("metrics-listen", "127.0.0.1:9090", "Prometheus metrics on `HOST:PORT`; keep it private")
	o.StringVar(&e.Prefix, "prefix", "tallygate", "`name` that the Redis keys begin with")
	instance := o.String("instance-id", "", "`name` of this instance in its log")
	o.String("kafka", "", "not used, since the enforcer reads Redis alone; accepted so that one --config serves `both` programs")
	o.IntVar(&e.Shards, "shards", 1, "`number` of shards of the blocklist, as the aggregators have it")
	o.DurationVar(&c.MaxStaleness, "max-staleness", 10*time.Second, "`time` that the blocklist may be behind before /readyz says so")
	o.StringVar(&c.UIDHeader, "uid-header", "X-Tallygate-Uid", "`header` with the uid, for forward-auth")
	o.StringVar(&c.IPHeader, "ip-header", "X-Tallygate-Ip", "`header` with the client's address, for forward-auth")
	o.StringVar(&c.APIHeader, "api-header", "X-Tallygate-Api", "`header` with the API, for forward-auth; without it the API is method and path")
	o.StringVar(&c.AttrPrefix, "attr-prefix", "X-Tallygate-Attr-", "`prefix` of headers with attributes, for forward-auth")
	o.StringVar(&c.MethodHeader, "method-header", "", "`header` with the original method, for forward-auth (default: X-Original-Method, X-Forwarded-Method); name the one that your proxy sets, so that no client can")
	o.StringVar(&c.PathHeader, "path-header", "", "`header` with the original path, for forward-auth (default: X-Original-Uri, X-Forwarded-Uri, X-Original-Url)")
	o.IntVar(&c.AllowStatus, "allow-status", http.StatusNoContent, "`status` by which forward-auth lets through: 204 or 200")
	if err := o.ParseOnly(args); err != nil {
		return nil, err
	}
	var err, lerr error
	e.Log, lerr = logs.Build(stderr)
	e.Redis, err = rds.Build()
	if err := errors.Join(lerr, err); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	if *instance != "" {
		e.Log = e.Log.With("instance", *instance)
	}
	ops.LogRedis(e.Log)
	if e.HTTP, err = ops.Listen("listen", *listen); err != nil {
		return nil, err
	}
	if e.Metrics, err = ops.Listen("metrics-listen", *metrics); err != nil {
		return nil, err
	}
	e.Registry = ops.NewRegistry("enforcer")
	return e, nil
}
