// Package enforcer is the enforcer program as a function: cmd/enforcer and `tallygate dev`
// run it.
package enforcer

import (
	"context"
	"log/slog"
	"net"
	"net/http"

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
	table, err := enforce.NewTable(enforce.Config{Shards: e.Shards, Causes: true})
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
	if err := ops.RedisErrors(e.Registry, "tallygate_feed_errors_total", "Failed attempts to follow the blocklist in Redis.",
		func() map[blocklist.Trouble]uint64 { return feed.Stats().Errors }); err != nil {
		return err
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
