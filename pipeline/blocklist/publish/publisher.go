// Package publish carries verdicts from the verdict topic into the blocklist in Redis, which
// package blocklist describes and follows.
package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/logonce"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
	"github.com/tallygate/tallygate/pipeline/internal/verdictlog"
	"github.com/tallygate/tallygate/verdict"
)

// Record is a record of the verdict topic: Offset, Key, Value, and the broker's Time. An empty
// Value removes the entry of its Key.
type Record = store.Record

// Config names a Publisher's topic and its Redis.
type Config struct {
	// Redis holds the blocklist; required. It must write to primaries. The caller closes it after
	// Run has returned.
	Redis redis.UniversalClient
	// Kafka lists brokers as host:port; required.
	Kafka []string
	// Transport carries TLS and SASL; nil is plain text.
	Transport *kafka.Transport
	// Topic is the verdict topic; "" is tallygate.verdicts.
	Topic string
	// Partitions is the number of the topic's partitions; required.
	Partitions int32
	// Prefix begins the names of all keys in Redis; "" is tallygate.
	Prefix string
	// Shards is the number of the blocklist's shards; 0 is 1. All publishers and feeds must agree: one with another
	// number refuses the blocklist.
	Shards int
	// PublishOnly makes the publisher own all partitions from the beginning, and read only the
	// topic.
	PublishOnly bool
	// Buffer bounds the bytes that wait for Redis, for each partition; 0 is 8 MiB. Offers beyond it
	// are dropped, and read from the topic.
	Buffer int
	// BatchSize bounds the records that one call of the script applies; 0 is 500.
	BatchSize int
	// StreamLength is about how many changes a shard's stream keeps; 0 is 65,536. A feed
	// that is further behind takes a new snapshot.
	StreamLength int64
	// Grace is the time for which an entry stays in Redis after its until; 0 is 1 h.
	Grace time.Duration
	// Heartbeat is the interval at which a shard's stream says up to which moment the shard is applied; 0 is 1 s. All
	// publishers write at the multiples of it, by their clocks.
	Heartbeat time.Duration
	// Logger; nil is slog.Default().
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	c.Topic = cmp.Or(c.Topic, "tallygate.verdicts")
	c.Prefix = cmp.Or(c.Prefix, "tallygate")
	c.Shards = cmp.Or(c.Shards, 1)
	c.Buffer = cmp.Or(c.Buffer, 8<<20)
	c.BatchSize = cmp.Or(c.BatchSize, 500)
	c.StreamLength = cmp.Or(c.StreamLength, 1<<16)
	c.Grace = cmp.Or(c.Grace, time.Hour)
	c.Heartbeat = cmp.Or(c.Heartbeat, time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Transport = cmp.Or(c.Transport, &kafka.Transport{ClientID: "tallygate"})
}

func (c *Config) validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("blocklist: "+format, args...))
		}
	}
	wrong(c.Redis == nil, "Redis is required")
	wrong(len(c.Kafka) == 0, "Kafka is required")
	wrong(c.Partitions < 1, "Partitions is %d, want the number of partitions of %s", c.Partitions, c.Topic)
	wrong(c.Shards < 1 || c.Partitions > 0 && c.Shards > int(c.Partitions), "Shards is %d, want 1 to %d, the number of partitions", c.Shards, c.Partitions)
	wrong(strings.ContainsAny(c.Prefix, "{}"), "Prefix is %q, want one without braces", c.Prefix)
	wrong(c.Buffer < 0 || c.BatchSize < 0 || c.StreamLength < 0 || c.Grace < 0, "Buffer, BatchSize, StreamLength and Grace must not be negative")
	wrong(c.Heartbeat < 10*time.Millisecond, "Heartbeat is %v, want at least 10ms", c.Heartbeat)
	if c.Redis != nil {
		errs = append(errs, layout.PrimariesOnly(c.Redis))
	}
	return errors.Join(errs...)
}

// Publisher copies the verdict topic into Redis, for the partitions it owns. Make it with New.
// Its methods may be called by many goroutines, before, during and after Run.
type Publisher struct {
	cfg        Config
	store      *store.Store
	topic      *verdictlog.Topic
	redis      failure.Outages
	kafka      failure.Outages
	refills    verdictlog.Refills
	noVerdicts logonce.Line // about malformed verdicts
	owned      *verdictlog.Owned[*worker]
}

// New returns a Publisher that does nothing until Run.
func New(cfg Config) (*Publisher, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Publisher{
		cfg: cfg,
		topic: &verdictlog.Topic{
			Client: &kafka.Client{Addr: kafka.TCP(cfg.Kafka...), Transport: cfg.Transport}, Name: cfg.Topic, Turn: make(chan struct{}, 1),
			Skip: verdict.OwnRecord, Keys: "the blocklist's", // a transaction marker's key begins with NUL, too
		},
		redis: failure.Outages{Log: cfg.Logger, What: "writing the blocklist to Redis", Kind: failure.Of},
		kafka: failure.Outages{Log: cfg.Logger, What: "reading the verdict topic"},
		refills: verdictlog.Refills{Log: cfg.Logger, What: "the blocklist", Done: func(verdicts int, took time.Duration) {
			cfg.Logger.Info("the blocklist in Redis is refilled", "verdicts", verdicts, "took_seconds", took.Seconds())
		}},
		owned: verdictlog.NewOwned[*worker](),
	}
	p.store = &store.Store{
		Client: cfg.Redis, Prefix: cfg.Prefix, Partitions: cfg.Partitions, Shards: cfg.Shards,
		StreamLength: cfg.StreamLength, Grace: event.FromDuration(cfg.Grace),
		BeatMillis: cfg.Heartbeat.Milliseconds(),
		Bad: func(r Record, err error) {
			if leftOut, due := p.noVerdicts.Due(); due {
				cfg.Logger.Error("skipping a malformed record of the verdict topic; further ones are not logged for a minute",
					"topic", cfg.Topic, "offset", r.Offset, "error", err, "left_out", leftOut)
			}
		},
	}
	if cfg.PublishOnly {
		for partition := range cfg.Partitions {
			p.Own(partition)
		}
	}
	return p, nil
}

// Own starts publishing a partition: first the topic's records, then the offered ones. It never
// blocks.
func (p *Publisher) Own(partition int32) {
	if partition < 0 || partition >= p.cfg.Partitions {
		p.cfg.Logger.Error("not publishing a partition that is not in the configuration", "partition", partition, "partitions", p.cfg.Partitions)
		return
	}
	p.owned.Own(partition, func() *worker { return newWorker(p, partition) })
}

// Disown stops publishing a partition. Its next owner reads records that were offered but not
// applied from the topic. It never blocks.
func (p *Publisher) Disown(partition int32) { p.owned.Disown(partition) }

// Offer hands over acknowledged records of a partition that this process owns: all verdicts of the
// offsets [first, next). Offsets that are not in records are the owners' own records. Offer never
// blocks. The publisher keeps records and what they refer to; the caller must not change them.
func (p *Publisher) Offer(partition int32, first, next int64, records []Record) {
	w := p.owned.Of(partition)
	if w != nil && !p.cfg.PublishOnly && next > first {
		w.offered.Add(first, next, records, p.cfg.Buffer)
	}
}

// Run publishes until ctx ends, and then returns nil. While Redis or Kafka is away it retries. It
// returns an error only if Redis' first answer refuses the user or the password
// (blocklist.ErrAuth), shows that it may evict entries (ErrEviction), or shows a blocklist with
// another number of shards (blocklist.ErrShards).
func (p *Publisher) Run(ctx context.Context) error {
	defer p.cfg.Transport.CloseIdleConnections()
	if err := p.check(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	p.owned.Run(ctx, func(ctx context.Context, w *worker) { w.run(ctx) })
	return nil
}

// Stats describes a Publisher's work.
type Stats struct {
	Partitions []PartitionStats // those owned, in order
	Failing    bool             // Redis or Kafka is away for at least one of them
	LastError  error            // nil when there was none
	LastErrAt  time.Time
	Redis      failure.Outage          // what is wrong with Redis now
	Errors     map[failure.Kind]uint64 // attempts at Redis that failed
	// Partitions that Redis had lost, in part at least, and that were read again.
	Refills uint64
}

// PartitionStats is one partition's progress.
type PartitionStats struct {
	Partition int32
	Shard     int
	Reached   int64 // the offset to apply next; -1 while unknown
	Lag       int64 // offsets that are known to be acknowledged and are not applied yet
	// Up to when it has been applied, by this process's clock; 0 while behind.
	Applied event.Micros
	Applies uint64 // batches that Redis took
	Refused uint64 // batches that began elsewhere than Redis had reached
	Dropped uint64 // offered records that were dropped, to be read from the topic
}

// Stats returns what the Publisher is doing now.
func (p *Publisher) Stats() Stats {
	var s Stats
	for _, w := range p.owned.All() {
		s.Partitions = append(s.Partitions, w.stats())
	}
	s.Redis = p.redis.Outage()
	s.Errors, s.Refills = p.redis.Errors(), p.refills.Total()
	for _, o := range []*failure.Outages{&p.redis, &p.kafka} {
		failing, at, err := o.State()
		s.Failing = s.Failing || failing
		if err != nil && at.After(s.LastErrAt) {
			s.LastError, s.LastErrAt = err, at
		}
	}
	return s
}
