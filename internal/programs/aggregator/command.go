package aggregator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
	"github.com/tallygate/tallygate/internal/run/tracing"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/rules"
)

const usage = `
aggregator counts the events of a Kafka topic by the rules of a file, publishes a verdict for
every key that is over a limit, and keeps the blocklist in Redis. Start as many as you like
with the same options: they share the partitions. See also: tallygate check, tallygate dev.

  aggregator --kafka kafka:9092 --redis redis:6379 --rules rules.yaml
  aggregator --version
`

// Command is cmd/aggregator: it returns the exit status.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // by default it ends the program, also while it starts
	defer signal.Stop(hangup)
	if ops.WriteVersion(args, "aggregator", stdout) {
		return ops.ExitOK
	}
	a, err := parse(args, stdout, stderr, getenv)
	if err != nil {
		return ops.Exit(stderr, "aggregator", err)
	}
	a.Hangup = hangup
	return ops.Live(ctx, a.Log, "aggregator", a.about(), func(ctx context.Context) error {
		err := a.Run(ctx)
		if a.Redis != nil {
			err = errors.Join(err, a.Redis.Close())
		}
		return err
	})
}

// about returns what the log says about the program when it starts.
func (a *Program) about() []any {
	c := &a.Config
	about := []any{"kafka", a.Kafka.Brokers, "prefix", c.Prefix, "advertise", c.Advertise}
	if a.RedisAccess != nil {
		about = append(about, "redis", a.RedisAccess.Addresses(), "shards", a.Shards)
	}
	if a.PublishOnly {
		about = append(about, "publish_only", true)
	} else {
		about = append(about, "file", c.RuleFile.Name, "rules", len(c.Rules.Rules))
	}
	if c.InstanceID != "" {
		about = append(about, "instance", c.InstanceID)
	}
	return append(about, a.listening()...)
}

func (a *Program) listening() []any {
	return ops.Listening(map[string]net.Listener{"listen": a.HTTP, "metrics_listen": a.Metrics})
}

func parse(args []string, stdout, stderr io.Writer, getenv func(string) string) (*Program, error) {
	o := ops.NewOptions("aggregator", usage, stdout, getenv)
	kafka, rds, logs, spans := kafkaconn.NewOptions(o), redisconn.NewOptions(o), o.Log(), tracing.NewOptions(o)
	a := &Program{}
	c := &a.Config
	rulesFile := o.String("rules", "", "rule `FILE`; required")
	l := listenOptions(o, &a.Access)
	partitions, replication := countingOptions(o, c)
	sample := o.Float64("trace-sample", 0, "with --trace-otlp: `share` of the verdicts without a sampled trace that begin one, such as 0.01")
	o.IntVar(&a.Shards, "shards", 1, "`number` of shards of the blocklist, for Redis Cluster")
	o.BoolVar(&a.PublishOnly, "publish-only", false, "only copy the verdict topic into Redis")
	if err := o.ParseOnly(args); err != nil {
		return nil, err
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
		a.RedisAccess = rds
		keep(err)
	}
	keep(checkCounting(c, *partitions, *replication))
	c.TraceEvery, err = tracing.Every(*sample)
	keep(err)
	c.Partitions, c.Replication = int32(*partitions), int16(*replication)
	if a.PublishOnly && a.Redis == nil {
		keep(errors.New("--publish-only needs --redis"))
	}
	broken := a.loadRules(*rulesFile)
	if *rulesFile == "" || a.PublishOnly {
		keep(broken)
		broken = nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &ops.UsageError{Err: errors.Join(err, broken)}
	}
	if broken != nil {
		if err := a.goOnWithGroup(*rulesFile, broken); err != nil {
			return nil, &ops.UsageError{Err: err}
		}
	}
	redisconn.LogTo(a.Log)
	if err := a.tell(o, spans); err != nil {
		return nil, err
	}
	if err := l.open(a); err != nil {
		return nil, err
	}
	return a, nil
}

// tell prepares what the program tells of itself.
func (a *Program) tell(o *ops.Options, spans *tracing.Options) (err error) {
	a.Settings = o.Settings
	a.Registry = ops.NewRegistry("aggregator")
	if err := o.WatchCertificates(a.Registry); err != nil {
		return err
	}
	a.Spans, err = spans.Build("aggregator", a.Config.InstanceID, a.Registry, a.Log)
	if err == nil && a.Spans == nil && a.Config.TraceEvery > 0 {
		a.Log.Warn("no verdict begins a trace: there is no collector to send spans to", "advice", "give --trace-otlp, or leave --trace-sample out")
	}
	return err
}

// countingOptions adds the options of what counts; it returns two that Config has in smaller types.
func countingOptions(o *ops.Options, c *aggregate.Config) (partitions, replication *int) {
	o.StringVar(&c.Prefix, "prefix", "tallygate", "`name` that all topics, the group and the Redis keys begin with")
	o.StringVar(&c.Advertise, "advertise", "", "`HOST:PORT` at which other instances reach this one's HTTP API (default --listen, with this machine's name if it listens on all interfaces)")
	o.StringVar(&c.InstanceID, "instance-id", "", "`name` for static membership: a restart under the same name gets its partitions back at once")
	partitions = o.Int("partitions", 0, "`number` of partitions of topics that it creates (0: 12)")
	replication = o.Int("replication", 0, "`number` of replicas of topics that it creates (0: 3, or the number of brokers if lower)")
	o.DurationVar(&c.CheckpointEvery, "checkpoint-every", time.Second, "`interval` between checkpoints")
	o.DurationVar(&c.SessionTimeout, "session-timeout", 10*time.Second, "`time` without a heartbeat after which partitions go to others")
	o.StringVar(&c.BrokerTime, "broker-time", "append", "append: records carry the broker's time; create: take the producers' `time`")
	o.BoolVar(&c.ForwardWhole, "forward-whole", false, "forward events to other partitions one by one, as earlier versions read them; it holds for the whole group")
	o.BoolVar(&c.AcceptNewTopic, "accept-new-topic", false, "continue after a topic was recreated or cut, with the counts kept")
	o.Float64Var(&c.HotShare, "hot-key-share", 0.1, "`share` of its partition's events from which on the log reports a key as hot; below 0: never")
	o.Float64Var(&c.HotRate, "hot-key-rate", 100, "`events` per second that a hot key or partition has at least, to be reported in the log")
	o.BoolVar(&c.LogHotKeys, "log-hot-keys", false, "name hot keys in the log; without it the log has only their dimensions")
	return partitions, replication
}

func checkCounting(c *aggregate.Config, partitions, replication int) (err error) {
	if partitions < 0 || partitions > math.MaxInt32 || replication < 0 || replication > math.MaxInt16 {
		err = fmt.Errorf("--partitions %d and --replication %d: want numbers that Kafka accepts", partitions, replication)
	}
	if c.BrokerTime != "append" && c.BrokerTime != "create" {
		err = errors.Join(err, fmt.Errorf("--broker-time %q: want append or create", c.BrokerTime))
	}
	return err
}

// advertised returns where others reach this listener. "All interfaces" is not an address, so this
// machine's name replaces it.
func advertised(listen string, addr net.Addr) (string, error) {
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "", err
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("find this machine's name, or give --advertise: %w", err)
		}
	}
	return net.JoinHostPort(host, port), nil
}

// loadRules reads and compiles the rule file. A publisher alone needs none.
func (a *Program) loadRules(path string) (err error) {
	c := &a.Config
	switch {
	case path != "":
		c.Rules, c.RuleFile, err = LoadRules(path)
	case a.PublishOnly:
		c.Rules = rules.None()
	default:
		err = errors.New("which rules? --rules FILE; `tallygate dev` shows an example")
	}
	return err
}
