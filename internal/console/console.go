// Package console is `tallygate console` as a function: the web pages that show an installation, and act on
// it. It is stateless: it reads Kafka, Redis and the programs' APIs, and acts only through the aggregator's
// API, with the reader's own credential. The aggregator decides what a reader may; the console only hides
// what would be refused.
//
// A page is one file, page_NAME.go with templates/NAME.html, and a row in the table of pages.go.
package console

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/console/session"
	"github.com/tallygate/tallygate/internal/run/health/watch"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/doctor"
)

// Program is the console. Set its fields, then call Run once.
type Program struct {
	// API asks the aggregators. Its token is the console's own, which only Health uses; what a reader does is
	// asked with the reader's token.
	API *api.Client

	Health  *watch.Watch   // the chain's state, asked of the same; required
	Doctor  doctor.Config  // what the overview's button examines; without Kafka there is no button
	Keys    *Keys          // what pages about keys follow; nil: those pages say that there is none
	Session session.Config // who reads; what the program knows itself is filled in

	Enforcers http.RoundTripper // asks enforcers about rules; nil is http.DefaultTransport

	HTTP     net.Listener
	Metrics  net.Listener // nil: none
	Registry *prometheus.Registry
	Log      *slog.Logger

	Settings func() []api.Setting // the options, for GET /v1/status; nil: it has none

	Now func() time.Time // nil is time.Now; tests have a fixed one
}

// Run serves until ctx ends.
func (p *Program) Run(ctx context.Context) error {
	if p.Health == nil || p.API == nil {
		return errors.New("console: Health and API are required")
	}
	g, ctx := errgroup.WithContext(ctx)
	s, err := newServer(ctx, p)
	if err != nil {
		return err
	}
	if err := s.sessions.Start(ctx); err != nil {
		return &ops.UsageError{Err: err}
	}
	g.Go(func() error { return ops.IgnoreCanceled(ctx, p.Health.Run(ctx)) })
	g.Go(func() error { s.assets.warm(); return nil })
	if p.Keys != nil {
		g.Go(func() error { return p.Keys.run(ctx) })
	}
	g.Go(func() error { return ops.IgnoreCanceled(ctx, s.rules.watch.Run(ctx)) })
	g.Go(func() error { return ops.Serve(ctx, p.HTTP, s.handler(), ops.Public, s.tune) })
	if p.Metrics != nil {
		g.Go(func() error { return ops.Serve(ctx, p.Metrics, ops.MetricsHandler(p.Registry, s.ready)) })
	}
	g.Go(func() error {
		ops.LogReady(ctx, p.Log, s.ready, ops.Listening(map[string]net.Listener{"listen": p.HTTP, "metrics_listen": p.Metrics})...)
		return nil
	})
	defer s.exam.open.Wait() // it ends with the context
	return g.Wait()
}

// tune hands the program's end to requests, so that live pages end with it.
func (s *server) tune(h *http.Server) {
	h.BaseContext = func(net.Listener) context.Context { return s.base }
}
