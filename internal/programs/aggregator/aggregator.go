// Package aggregator is the aggregator program as a function: cmd/aggregator and `tallygate dev`
// run it.
package aggregator

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
	"github.com/tallygate/tallygate/internal/run/tracing"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
)

// Program is the aggregator: counts, verdicts, the blocklist in Redis, and the HTTP API. Set its
// fields, then call Run once.
type Program struct {
	Config aggregate.Config
	// Config.RuleFile is in memory: there is no file to follow or to read again.
	RulesInMemory bool
	Kafka         *kafkaconn.Kafka
	Redis         redis.UniversalClient // nil: verdicts go to their topic only
	RedisAccess   *redisconn.Options    // the options of Redis; nil: its refusals are not watched
	Shards        int                   // of the blocklist; 0 is 1
	// No counting, only the verdict topic into Redis, as for another region.
	PublishOnly bool
	HTTP        net.Listener
	Access      access.Config     // who may use the HTTP API; Run fills in where it is served
	Metrics     net.Listener      // nil: none
	Spans       *tracing.Exporter // of sampled traces; nil: none are made
	Registry    *prometheus.Registry
	Log         *slog.Logger
	Hangup      <-chan os.Signal // SIGHUPs; nil: Run subscribes if it follows a rule file

	Settings func() []api.Setting // the options, for GET /v1/status; nil: it has none

	publishes atomic.Pointer[publish.Publisher] // nil: nothing is published to Redis yet
	broken    error                             // why the rule file could not be used at the start; nil if it could
}

// hasFile tells whether the rules are those of a file, which may change.
func (a *Program) hasFile() bool { return len(a.Config.RuleFile.Source) > 0 && !a.RulesInMemory }

// configure fills in what the engine has of the program.
func (a *Program) configure() {
	a.Config.Registry, a.Config.Logger, a.Config.Kafka = a.Registry, a.Log, clients.Sarama(a.Kafka)
	a.Config.Brokers, a.Config.Compile = a.Kafka.Brokers, compileFile
}

// Run works until ctx ends.
func (a *Program) Run(ctx context.Context) error {
	a.configure()
	if a.Spans != nil {
		a.Config.Tracer = &tracer{spans: a.Spans, topics: topics.NamesOf(a.Config.Prefix)}
		defer a.Spans.Start(ctx)()
	}
	if a.Redis != nil {
		a.Config.Meeting, a.Config.Shards = &meeting{redis: a.Redis, prefix: a.Config.Prefix}, max(a.Shards, 1)
	}
	agg, err := aggregate.New(a.Config)
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		a.Kafka.WatchAccess(ctx, a.Log)
		return nil
	})
	if a.RedisAccess != nil {
		g.Go(func() error {
			a.RedisAccess.WatchAccess(ctx, a.Log, a.Redis)
			return nil
		})
	}
	again := &reloader{Program: a, agg: agg, file: newFileState(a.Registry, a.broken)}
	if a.broken != nil {
		agg.RuleFileRefused()
	}
	if err := a.serveHTTP(ctx, g, again, agg.Answers, agg.Ready); err != nil {
		return err
	}
	if a.hasFile() && !a.PublishOnly {
		g.Go(func() error { return again.run(ctx) })
	}
	g.Go(func() error {
		ops.PaceCollector(ctx, agg.StateBytes)
		return nil
	})
	g.Go(func() error { return a.count(ctx, agg) })
	return g.Wait()
}

// refused returns which server refuses the program.
func (a *Program) refused() error {
	if a.RedisAccess == nil {
		return a.Kafka.Ready()
	}
	return errors.Join(a.Kafka.Ready(), a.RedisAccess.Ready())
}

// count runs the publisher beside the aggregator, and stops it after it has received the
// aggregator's last verdicts.
func (a *Program) count(ctx context.Context, agg *aggregate.Aggregator) error {
	partitions, err := agg.Prepare(ctx)
	if err != nil || ctx.Err() != nil {
		return ops.IgnoreCanceled(ctx, err)
	}
	if a.Redis == nil {
		if set := a.Config.Rules; set != nil && len(set.Strict()) > 0 {
			a.Log.Warn("no permit is granted under strict rules: they need Redis, and this program has none", "rules", len(set.Strict()))
		}
		return agg.Run(ctx)
	}
	pub, err := a.publisher(partitions)
	if err != nil {
		return err
	}
	a.publishes.Store(pub)
	if err := redisconn.CountErrors(a.Registry, "tallygate_publish_errors_total", "Failed attempts to write the blocklist to Redis.",
		func() map[blocklist.ErrorKind]uint64 { return pub.Stats().Errors }); err != nil {
		return err
	}
	if err := a.Registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "tallygate_blocklist_refills_total", Help: "Partitions whose verdicts Redis lost and that were refilled from the verdict topic.",
	}, func() float64 { return float64(pub.Stats().Refills) })); err != nil {
		return err
	}
	if a.PublishOnly {
		return ops.IgnoreCanceled(ctx, pub.Run(ctx))
	}
	agg.Publish(handover{pub})
	strict, err := a.strict(agg, partitions)
	if err != nil {
		return err
	}
	pctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, gctx := errgroup.WithContext(pctx)
	g.Go(func() error { return ops.IgnoreCanceled(pctx, pub.Run(gctx)) })
	g.Go(func() error { return strict.run(gctx) })
	g.Go(func() error {
		a.watchSwitches(gctx, agg)
		return nil
	})
	g.Go(func() error {
		defer time.AfterFunc(lastVerdicts, stop)
		actx, cancel := context.WithCancel(ctx)
		defer cancel()
		context.AfterFunc(gctx, cancel) // the publisher's end ends the aggregator
		return agg.Run(actx)
	})
	return g.Wait()
}

// lastVerdicts is the time for which the publisher continues after the last verdict was issued. The next owner's
// publisher reads the rest from the topic.
const lastVerdicts = 200 * time.Millisecond

func (a *Program) publisher(partitions int32) (*publish.Publisher, error) {
	return publish.New(publish.Config{
		Redis:       a.Redis,
		Kafka:       a.Kafka.Brokers,
		Transport:   a.Kafka.Transport(),
		Topic:       topics.NamesOf(a.Config.Prefix).Verdicts,
		Partitions:  partitions,
		Prefix:      a.Config.Prefix,
		Shards:      a.Shards,
		PublishOnly: a.PublishOnly,
		Logger:      a.Log,
	})
}

// handover gives acknowledged verdicts to the publisher in the same process.
type handover struct{ *publish.Publisher }

func (h handover) Offer(partition int32, first, next int64, r aggregate.VerdictRecord) {
	h.Publisher.Offer(partition, first, next, []publish.Record{{Offset: r.Offset, Key: r.Key, Value: r.Value, Time: r.At}})
}
