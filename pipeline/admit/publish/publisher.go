// Package publish carries what owners say about strict limits from the verdict topic into Redis, and
// runs the publisher's side of package protocol: it tells shards what is counted, and has owners say
// which Redis may grant permits. It is a reader of the verdict topic of its own, beside the blocklist's
// publisher, with an offset of its own in Redis.
package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/logonce"
	"github.com/tallygate/tallygate/pipeline/admit/internal/script"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
	"github.com/tallygate/tallygate/pipeline/internal/verdictlog"
	"github.com/tallygate/tallygate/verdict"
)

// Shards are the scripts in Redis. Partition p is on shard p % Config.Shards.
type Shards interface {
	// Apply brings a batch to the shard of its partition.
	Apply(ctx context.Context, b *protocol.Batch) (protocol.Applied, error)
	// Report tells a shard what a partition of another one has forwarded.
	Report(ctx context.Context, shard int, partition int32, forwarded protocol.Mark) (protocol.Applied, error)
	// PutRules stores the text of a version of the rules; it is empty when no rule of them asks for
	// anything before an action. HasRules tells whether enforcers find it.
	PutRules(ctx context.Context, version uint64, text []byte) error
	HasRules(ctx context.Context, version uint64) (bool, error)
}

// OnRedis returns the shards in a Redis, whose keys begin with a prefix. The client must write to primaries; the
// caller closes it after Run has returned.
func OnRedis(client redis.UniversalClient, prefix string, shards int, partitions int32) Shards {
	return &script.Shards{Client: client, Prefix: cmp.Or(prefix, "tallygate"), Shards: max(shards, 1), Partitions: partitions}
}

// Owner counts one partition.
type Owner interface {
	// Progress returns when all that the owner took in before is counted and forwarded, and its levels
	// are in the verdict topic.
	Progress(ctx context.Context) (protocol.Progress, error)
	// Grant appends to the verdict topic, unless another process is the owner now.
	Grant(ctx context.Context, g *protocol.Grants) error
	// CountLost counts permits whose actions never told how they ended.
	CountLost(ctx context.Context, lost []protocol.Lost) error
	// LastGrants is the last one in the verdict topic when the owner took over; nil: there is none.
	LastGrants() *protocol.Grants
}

// Ends reads where logs end: what was acknowledged before the call is before the end.
type Ends interface {
	InputEnd(ctx context.Context, partition int32) (int64, error) // of the events
	LoopEnd(ctx context.Context, partition int32) (int64, error)  // of what other partitions forward
}

// Record is a record of the verdict topic.
type Record struct {
	Offset int64
	protocol.Record
}

// Config names a Publisher's topic and its Redis.
type Config struct {
	Redis Shards // required
	Ends  Ends   // required
	// Kafka lists brokers as host:port; required.
	Kafka []string
	// Transport carries TLS and SASL; nil is plain text.
	Transport *kafka.Transport
	// Topic is the verdict topic; "" is tallygate.verdicts.
	Topic string
	// Partitions is the number of the topic's partitions; required.
	Partitions int32
	// Shards is the number of shards in Redis; 0 is 1.
	Shards int
	// Buffer bounds the bytes that wait for Redis, for each partition; 0 is 8 MiB. Offers beyond it are
	// dropped, and read from the topic.
	Buffer int
	// BatchSize bounds the records that one call applies, coalesced by key; 0 is 500.
	BatchSize int
	// Heartbeat is the longest time between a partition's calls to Redis; 0 is 1 s.
	Heartbeat time.Duration
	// Logger; nil is slog.Default().
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	c.Topic = cmp.Or(c.Topic, "tallygate.verdicts")
	c.Shards = cmp.Or(c.Shards, 1)
	c.Buffer = cmp.Or(c.Buffer, 8<<20)
	c.BatchSize = cmp.Or(c.BatchSize, 500)
	c.Heartbeat = cmp.Or(c.Heartbeat, time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Transport = cmp.Or(c.Transport, &kafka.Transport{ClientID: "tallygate"})
}

func (c *Config) validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("strict limits: "+format, args...))
		}
	}
	wrong(c.Redis == nil, "Redis is required")
	wrong(c.Ends == nil, "Ends is required")
	wrong(len(c.Kafka) == 0, "Kafka is required")
	wrong(c.Partitions < 1, "Partitions is %d, want the number of partitions of %s", c.Partitions, c.Topic)
	wrong(c.Shards < 1 || c.Partitions > 0 && c.Shards > int(c.Partitions), "Shards is %d, want 1 to %d, the number of partitions", c.Shards, c.Partitions)
	wrong(c.Buffer < 0 || c.BatchSize < 0, "Buffer and BatchSize must not be negative")
	wrong(c.Heartbeat < 10*time.Millisecond, "Heartbeat is %v, want at least 10ms", c.Heartbeat)
	return errors.Join(errs...)
}

// Publisher brings the partitions that it owns to Redis. Make it with New. Its methods may be called by
// many goroutines, before, during and after Run. As long as no rule is strict, it only says so in Redis.
type Publisher struct {
	cfg       Config
	topic     *verdictlog.Topic
	owned     *verdictlog.Owned[*worker]
	redis     failure.Outages
	reports   failure.Outages // to shards of other partitions
	kafka     failure.Outages
	owners    failure.Outages
	malformed logonce.Line
	refills   verdictlog.Refills
	rules     *rulesInUse
	losses    losses
	applies   atomic.Uint64
	mono      func() event.Micros // the process' monotonic clock
	clock     func() event.Micros
}

// New returns a Publisher that does nothing until Run, and until rules are strict.
func New(cfg Config) (*Publisher, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	began := time.Now()
	p := &Publisher{
		cfg: cfg,
		topic: &verdictlog.Topic{
			Client: &kafka.Client{Addr: kafka.TCP(cfg.Kafka...), Transport: cfg.Transport}, Name: cfg.Topic, Turn: make(chan struct{}, 1),
			Skip: func(key []byte) bool { return !verdict.OwnRecord(key) }, Keys: "the strict limits'",
		},
		owned:   verdictlog.NewOwned[*worker](),
		redis:   failure.Outages{Log: cfg.Logger, What: "writing strict limits to Redis", Kind: kindOf},
		reports: failure.Outages{Log: cfg.Logger, What: "telling other shards of Redis what is forwarded", Kind: kindOf},
		kafka:   failure.Outages{Log: cfg.Logger, What: "reading Kafka for strict limits"},
		owners:  failure.Outages{Log: cfg.Logger, What: "asking owners for strict limits"},
		refills: verdictlog.Refills{Log: cfg.Logger, What: "the memory of strict limits", Done: func(records int, took time.Duration) {
			cfg.Logger.Info("the memory of strict limits in Redis is refilled", "records", records, "took_seconds", took.Seconds())
		}},
		mono:  func() event.Micros { return event.Second + event.FromDuration(time.Since(began)) },
		clock: func() event.Micros { return event.FromTime(time.Now()) },
	}
	p.rules = newRulesInUse(p)
	return p, nil
}

// Own begins to publish a partition, whose owner took over when the verdict topic ended at an offset.
// It never blocks, and does not call the owner.
func (p *Publisher) Own(partition int32, owner Owner, end int64) {
	if partition < 0 || partition >= p.cfg.Partitions {
		p.cfg.Logger.Error("not publishing strict limits of a partition that is not in the configuration", "partition", partition)
		return
	}
	p.owned.Own(partition, func() *worker { return newWorker(p, partition, owner, end) })
}

// Disown stops publishing a partition. Its next owner reads what was offered but not applied from the
// topic. It never blocks.
func (p *Publisher) Disown(partition int32) { p.owned.Disown(partition) }

// Offer hands over acknowledged records of a partition that this process owns: all about strict limits
// of the offsets [first, next). Offer never blocks. The publisher keeps the records; the caller must not
// change them.
func (p *Publisher) Offer(partition int32, first, next int64, records []Record) {
	switch w := p.owned.Of(partition); {
	case w == nil, next <= first:
	case w.active():
		w.offered.Add(first, next, records, p.cfg.Buffer)
	default:
		w.offered.Pass(next)
	}
}

// Use sets the rules in force: their version and text, which is empty when no rule of them asks for anything before
// an action, and the holds of those that are strict, in any order. It never blocks.
func (p *Publisher) Use(version uint64, text []byte, holds []event.Micros) {
	p.rules.use(version, text, holds)
	for _, w := range p.owned.All() {
		w.wake()
	}
}

// Run publishes until ctx ends. While Redis or Kafka is away it retries.
func (p *Publisher) Run(ctx context.Context) error {
	defer p.cfg.Transport.CloseIdleConnections()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { p.rules.run(ctx) })
	p.owned.Run(ctx, func(ctx context.Context, w *worker) { w.run(ctx) })
	return nil
}
