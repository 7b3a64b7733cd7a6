// Package aggregator is the aggregator program as a function: cmd/aggregator and `tallygate
// dev` run it.
package aggregator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/rules"
)

// Program is the aggregator: counts, verdicts, the blocklist in Redis, and the
// HTTP API.
type Program struct {
	Config      aggregate.Config
	Kafka       *ops.Kafka
	Redis       redis.UniversalClient // nil: verdicts go to their topic only
	Shards      int                   // of the blocklist; 0 is 1
	PublishOnly bool                  // no counting: the verdict topic into Redis, for a region of its own
	HTTP        net.Listener
	Metrics     net.Listener // nil: none
	Registry    *prometheus.Registry
	Log         *slog.Logger
}

// Run works until ctx ends.
func (a *Program) Run(ctx context.Context) error {
	a.Config.Registry, a.Config.Logger, a.Config.Kafka = a.Registry, a.Log, a.Kafka.Sarama
	a.Config.Brokers = a.Kafka.Brokers
	agg, err := aggregate.New(a.Config)
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	g, ctx := errgroup.WithContext(ctx)
	mux := http.NewServeMux()
	ops.Health(mux, agg.Ready)
	mux.HandleFunc("GET /v1/explain", agg.ServeExplain)
	g.Go(func() error { return ops.Serve(ctx, a.HTTP, mux) })
	if a.Metrics != nil {
		g.Go(func() error { return ops.Serve(ctx, a.Metrics, ops.MetricsHandler(a.Registry)) })
	}
	g.Go(func() error { return a.count(ctx, agg) })
	return g.Wait()
}

// count runs the publisher beside the aggregator, and stops it after the aggregator's last
// verdicts are with it.
func (a *Program) count(ctx context.Context, agg *aggregate.Aggregator) error {
	partitions, err := agg.Prepare(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if a.Redis == nil {
		return agg.Run(ctx)
	}
	pub, err := a.publisher(partitions)
	if err != nil {
		return err
	}
	if a.PublishOnly {
		return ops.UnlessEnded(ctx, pub.Run(ctx))
	}
	agg.Publish(handover{pub})
	pctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, gctx := errgroup.WithContext(pctx)
	g.Go(func() error { return ops.UnlessEnded(pctx, pub.Run(gctx)) })
	g.Go(func() error {
		defer time.AfterFunc(lastVerdicts, stop)
		actx, cancel := context.WithCancel(ctx)
		defer cancel()
		context.AfterFunc(gctx, cancel) // the publisher's end is ours
		return agg.Run(actx)
	})
	return g.Wait()
}

// lastVerdicts is how long the publisher goes on after the last verdict was made. What it
// doesn't get done, the next owner's publisher reads from the topic.
const lastVerdicts = 200 * time.Millisecond

func (a *Program) publisher(partitions int32) (*blocklist.Publisher, error) {
	transport, err := a.Kafka.Transport()
	if err != nil {
		return nil, err
	}
	return blocklist.NewPublisher(blocklist.PublisherConfig{
		Redis:       a.Redis,
		Kafka:       a.Kafka.Brokers,
		Transport:   transport,
		Topic:       topics.NamesOf(a.Config.Prefix).Verdicts,
		Partitions:  partitions,
		Prefix:      a.Config.Prefix,
		Shards:      a.Shards,
		PublishOnly: a.PublishOnly,
		Logger:      a.Log,
	})
}

// handover gives acknowledged verdicts to the publisher in the same process.
type handover struct{ *blocklist.Publisher }

func (h handover) Offer(partition int32, first, next int64, r aggregate.VerdictRecord) {
	h.Publisher.Offer(partition, first, next, []blocklist.Record{{Offset: r.Offset, Key: r.Key, Value: r.Value, Time: r.At}})
}

const usage = `
aggregator counts the events of a Kafka topic by the rules of a file, publishes a verdict for
every key that is over a limit, and keeps the blocklist in Redis. Start as many as you like
with the same options: they share the partitions. See also: tallygate check, tallygate dev.

  aggregator --kafka kafka:9092 --redis redis:6379 --rules rules.yaml
`

// Command is cmd/aggregator: it returns the exit status.
func Command(ctx context.Context, args []string, stderr io.Writer, getenv func(string) string) int {
	a, err := parse(args, stderr, getenv)
	if err == nil {
		err = a.Run(ctx)
		if a.Redis != nil {
			err = errors.Join(err, a.Redis.Close())
		}
	}
	return ops.Exit(stderr, "aggregator", err)
}

func parse(args []string, stderr io.Writer, getenv func(string) string) (*Program, error) {
	o := ops.NewOptions("aggregator", usage, stderr, getenv)
	kafka, rds, logs := o.Kafka(), o.Redis(), o.Log()
	a := &Program{}
	c := &a.Config
	rulesFile := o.String("rules", "", "rule `FILE`; required")
	listen := o.String("listen", "127.0.0.1:8081", "HTTP API on `HOST:PORT`: /v1/explain, /healthz, /readyz")
	metrics := o.String("metrics-listen", "127.0.0.1:9091", "Prometheus metrics on `HOST:PORT`; keep it private")
	o.StringVar(&c.Prefix, "prefix", "tallygate", "`name` that all topics, the group and the Redis keys begin with")
	o.StringVar(&c.Advertise, "advertise", "", "`HOST:PORT` where other instances reach this one's HTTP API (default --listen)")
	o.StringVar(&c.InstanceID, "instance-id", "", "`name` for static membership: a restart under the same name takes its partitions back at once")
	partitions := o.Int("partitions", 0, "`number` of partitions, when the topics are created (0: 12)")
	replication := o.Int("replication", 0, "`number` of replicas, when the topics are created (0: 3, or the brokers there are)")
	o.DurationVar(&c.CheckpointEvery, "checkpoint-every", time.Second, "`interval` between checkpoints")
	o.DurationVar(&c.SessionTimeout, "session-timeout", 10*time.Second, "`time` without a heartbeat after which partitions go to others")
	o.StringVar(&c.BrokerTime, "broker-time", "append", "append: records carry the broker's time; create: take the producers' `time`")
	o.BoolVar(&c.AcceptNewTopic, "accept-new-topic", false, "go on, counts kept, after a topic was recreated or cut")
	o.IntVar(&a.Shards, "shards", 1, "`number` of shards of the blocklist, for Redis Cluster")
	o.BoolVar(&a.PublishOnly, "publish-only", false, "only copy the verdict topic into Redis")
	if err := o.Parse(args); err != nil {
		return nil, err
	}
	c.Partitions, c.Replication = int32(*partitions), int16(*replication)
	if c.Advertise == "" {
		c.Advertise = *listen
	}
	var errs []error
	keep := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	a.Log, err = logs.Build(stderr)
	keep(err)
	a.Kafka, err = kafka.Build()
	keep(err)
	if rds.Given() {
		a.Redis, err = rds.Build()
		keep(err)
	}
	if a.PublishOnly && a.Redis == nil {
		keep(errors.New("--publish-only needs --redis"))
	}
	c.Rules, err = loadRules(*rulesFile, a.PublishOnly)
	keep(err)
	if err := errors.Join(errs...); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	if a.HTTP, err = ops.Listen("listen", *listen); err != nil {
		return nil, err
	}
	if a.Metrics, err = ops.Listen("metrics-listen", *metrics); err != nil {
		return nil, err
	}
	a.Registry = ops.NewRegistry("aggregator")
	return a, nil
}

// loadRules reads and compiles a rule file. A publisher alone needs none.
func loadRules(path string, optional bool) (*rules.Set, error) {
	if path == "" {
		if optional {
			return rules.Compile("none", []byte(noRules))
		}
		return nil, errors.New("which rules? --rules FILE; `tallygate dev` shows an example")
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	set, err := rules.Compile(path, src)
	if err != nil {
		return nil, err
	}
	if n, dims := set.LargestState(); n > rules.MaxStateBytes {
		return nil, fmt.Errorf("%s: a key of %s can have %d bytes of state, at most %d are allowed", path, strings.Join(dims, ", "), n, rules.MaxStateBytes)
	}
	return set, nil
}

const noRules = "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: none}\nspec: {rules: []}\n"
