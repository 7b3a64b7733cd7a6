// Package enforcer is the enforcer program as a function: cmd/enforcer and `tallygate dev` run it.
package enforcer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/api"
	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
	"github.com/tallygate/tallygate/internal/run/tracing"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Program is the enforcer: a table that follows the blocklist, and the decision server on it. Set
// its fields, then call Run once.
type Program struct {
	Config      decision.Config // Table and Admit are made by Run
	OnStale     OnStale
	Admit       admit.Config  // permits of strict rules; Redis, and how long requests wait, are filled in by Run
	Access      access.Config // who may list the blocklist; where it is served is filled in by Run
	OffFile     string        // turns enforcement off while it exists; "": none
	Redis       redis.UniversalClient
	RedisAccess *redisconn.Options // the options of Redis; nil: its refusals are not watched
	Events      Events             // sends the events of requests to Kafka; nil: none are emitted
	EmitDenied  bool               // to Kafka, some of what proxies are told to deny
	Presence    Presence           // how it is announced in Redis
	Prefix      string
	Shards      int
	Snapshot    string // the file with a copy of the table; "" is none
	HTTP        net.Listener
	GRPC        net.Listener      // nil: none
	Metrics     net.Listener      // nil: none
	Spans       *tracing.Exporter // of sampled traces; nil: none are made
	Registry    *prometheus.Registry
	Log         *slog.Logger

	Settings func() []api.Setting // the options, for GET /v1/status; nil: it has none
	Instance string               // its name there; "" is where it listens

	Hangup <-chan os.Signal // SIGHUPs, which change nothing; nil: none are delivered

	// DrainDelay is the time for which the program continues to answer after it was told to stop, while it reports
	// that it is not ready; 0 is not at all. Then current requests may finish.
	DrainDelay time.Duration

	draining atomic.Bool
}

// Run works until ctx ends.
func (e *Program) Run(ctx context.Context) error {
	defer e.Spans.Start(ctx)()
	table, feed, err := e.blocklist()
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	e.Config.Table, e.Config.Registry, e.Config.Refused = table, e.Registry, feed.Refused
	if e.Config.Guard, err = e.guard(); err != nil {
		return &ops.UsageError{Err: err}
	}
	e.sayExposed()
	sayReportable(e.Log, &e.Config.Usage, e.GRPC, e.Access.Certificates)
	var closeEvents func()
	if e.Config.Admit, closeEvents, err = e.admitter(); err != nil {
		return &ops.UsageError{Err: err}
	}
	defer closeEvents()
	server, err := decision.New(e.Config)
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	if err := redisconn.CountErrors(e.Registry, "tallygate_feed_errors_total", "Failed attempts to follow the blocklist in Redis.",
		func() map[blocklist.ErrorKind]uint64 { return feed.Stats().Errors }); err != nil {
		return err
	}
	announcer, err := e.presence(table, feed, server)
	if err != nil {
		return err
	}
	sink, keep, err := e.keeper(table)
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	// The table and its feed outlive ctx by the drain.
	working, done := context.WithCancel(context.WithoutCancel(ctx))
	defer done()
	g, working := errgroup.WithContext(working)
	g.Go(func() error { return ops.IgnoreCanceled(working, table.Run(working)) })
	g.Go(func() error { return ops.IgnoreCanceled(working, feed.Run(working, sink)) })
	if announcer != nil {
		g.Go(func() error { return announcer.Run(working) })
	}
	g.Go(func() error { return keep(working) })
	g.Go(func() error { return e.Config.Admit.Run(working) })
	g.Go(func() error { return e.answerHangups(working) })
	ready := func() error { return e.ready(server) }
	if e.RedisAccess != nil {
		g.Go(func() error { e.RedisAccess.WatchAccess(working, e.Log, e.Redis); return nil })
	}
	if e.Metrics != nil {
		g.Go(func() error { return ops.Serve(working, e.Metrics, ops.MetricsHandler(e.Registry, ready, e.refused)) })
	}
	watched, unwatch := context.WithCancel(working) // until it is told to stop, or a part fails
	defer context.AfterFunc(ctx, unwatch)()
	g.Go(func() error { ops.LogReady(watched, e.Log, ready, e.listening()...); return nil })
	g.Go(func() error {
		defer done()
		return e.serve(ctx, working, server, ready, e.reporter(table, feed, ready))
	})
	return g.Wait()
}

// sayExposed logs that who is not on this machine gets no permits without a credential.
func (e *Program) sayExposed() {
	if err := e.Config.Guard.Exposed(); err != nil {
		e.Log.Info("asking for permits over HTTP is refused: whoever reaches this address could use limits up; give the role service to tokens or client certificates with --tokens FILE", "paths", "/v1/admit /v1/cancel /v1/done")
	}
}

// reporter answers GET /v1/status.
func (e *Program) reporter(table *enforce.Table, feed *blocklist.Feed, ready func() error) *ops.Reporter {
	r := ops.NewReporter("enforcer")
	r.Instance, r.Address = e.Instance, e.HTTP.Addr().String()
	r.Ready, r.But, r.Settings, r.Log = ready, e.refused, e.Settings, e.Log
	if e.Registry != nil {
		r.Registry = e.Registry
	}
	r.Fill = func(s *api.Status) {
		s.Enforcer = &api.EnforcerStatus{Entries: table.Summary().Entries, Staleness: -1, Stale: table.Stale(), Enabled: table.Enabled(),
			Redis: e.RedisAccess.Trouble(feed.Stats().Outage)}
		if table.Ready() {
			s.Enforcer.Staleness = table.Staleness().Seconds()
		}
		if cause, since := table.Off(); cause != "" {
			s.Enforcer.Enabled, s.Enforcer.OffCause, s.Enforcer.OffSince = false, string(cause), since.UTC()
		}
	}
	return r
}

// blocklist makes the table, and the feed that fills it.
func (e *Program) blocklist() (*enforce.Table, *blocklist.Feed, error) {
	shards := e.Shards
	if e.Snapshot != "" {
		shards = max(shards, 1) + 1 // one belongs to the keeper
	}
	table, err := enforce.NewTable(enforce.Config{
		Shards: shards, Causes: true, MaxStaleness: e.Config.MaxStaleness, OffFile: e.OffFile,
		OnStale: e.OnStale.Do, Rules: e.OnStale.Rules, Instances: e.OnStale.Instances, Logger: e.Log,
		Traced: e.traced(),
	})
	if err != nil {
		return nil, nil, err
	}
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: e.Redis, Prefix: e.Prefix, Shards: e.Shards, Logger: e.Log})
	return table, feed, err
}

// ready returns why the program is not ready. With a snapshot it is ready, even while Redis refuses
// it: it denies what it knows, and its staleness shows the rest. A wrong password rotation affects
// all enforcers at once, and would take every service behind them out of rotation.
func (e *Program) ready(server *decision.Server) error {
	if e.draining.Load() {
		return errors.New("it was told to stop")
	}
	if err := server.Ready(); err != nil {
		return errors.Join(e.refused(), err)
	}
	return nil
}

// refused returns why Redis refuses the program, once that has lasted.
func (e *Program) refused() error {
	if e.RedisAccess == nil {
		return nil
	}
	return e.RedisAccess.Ready()
}

// guard restricts who may list the blocklist: without credentials, every caller on loopback may.
func (e *Program) guard() (*access.Guard, error) {
	cfg := e.Access
	cfg.Logger, cfg.Addr = e.Log, e.HTTP.Addr()
	cfg.Listen = cmp.Or(cfg.Listen, cfg.Addr.String())
	return access.New(cfg)
}

// answerHangups continues after each SIGHUP: no file is read only on a signal.
func (e *Program) answerHangups(ctx context.Context) error {
	for {
		select {
		case <-e.Hangup:
			e.Log.Info("SIGHUP ignored; changed certificate and secret files are noticed without it")
		case <-ctx.Done():
			return nil
		}
	}
}

// maxHeader is the largest header of a request, in bytes. It is more than a proxy passes on: Caddy and
// Traefik take one of 1 MiB from a client by default, others less. A proxy that is open may take the answer
// to a larger one for a failure, as it may not have sent all of it.
const maxHeader = 2 << 20

func takesProxies(s *http.Server) { s.MaxHeaderBytes = maxHeader }

// serve answers until ctx ends and the drain is over, or working ends.
func (e *Program) serve(ctx, working context.Context, server *decision.Server, ready func() error, about http.Handler) error {
	mux := http.NewServeMux()
	ops.Health(mux, ready, e.refused)
	ops.Describe(mux, apidocs.Enforcer)
	mux.Handle("GET /v1/status", e.Config.Guard.Require(access.Viewer, about))
	g, working := errgroup.WithContext(working)
	serving, end := context.WithCancel(working)
	defer end()
	g.Go(func() error { return ops.Serve(serving, e.HTTP, server.Handler(mux), ops.Public, takesProxies) })
	if e.GRPC != nil {
		g.Go(func() error { return decision.ServeGRPC(serving, e.GRPC, server.GRPC(serving, ready)) })
	}
	g.Go(func() error {
		defer end()
		select {
		case <-serving.Done():
			return nil
		case <-ctx.Done():
		}
		e.draining.Store(true)
		retry.Sleep(serving, e.DrainDelay)
		return nil
	})
	return g.Wait()
}

// keeper loads the copy of the table. It returns what the feed fills, and what writes the copy.
// Without an option for the copy, these are the table itself and nil. A copy that cannot be read is
// logged and ignored: the feed replaces it.
func (e *Program) keeper(table *enforce.Table) (sink blocklist.Sink, run func(context.Context) error, err error) {
	if e.Snapshot == "" {
		return table, func(context.Context) error { return nil }, nil
	}
	k, err := blocklist.NewKeeper(blocklist.KeeperConfig{File: e.Snapshot, Table: table, Shards: e.Shards, Prefix: e.Prefix, Logger: e.Log})
	if err != nil {
		return nil, nil, err
	}
	loaded, err := k.Load()
	switch {
	case err != nil:
		e.Log.Error("starting without the last known blocklist", "error", err)
	case loaded.Age > 0:
		e.Log.Info("enforcing the last known blocklist until Redis answers", "verdicts", loaded.Verdicts, "age_seconds", loaded.Age.Seconds())
	}
	return k.Sink(), k.Run, nil
}
