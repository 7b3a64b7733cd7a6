package aggregate

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/rules"
)

// Config configures an Aggregator. Brokers and Rules are required; the zero value of every other
// field is its default.
type Config struct {
	Brokers []string   // bootstrap addresses, host:port; required
	Rules   *rules.Set // required

	// RuleFile is the source of Rules. If it is set, the group shares its rules: every instance
	// runs the newest version in the rules topic, and Reload publishes another. Otherwise Rules
	// never changes.
	RuleFile RuleFile

	// Compile turns a RuleFile into a set. Nil is rules.CompileWith, or CompilePublished if the
	// file is Published, with the RuleFile's Beside.
	Compile func(RuleFile) (*rules.Set, error)

	Prefix      string // of all topics, the group and the transactional ids; "" is tallygate
	Partitions  int32  // of the topics, when they are created; 0 is what exists, or 12
	Replication int16  // the same; 0 is 3, or the number of brokers if that is less

	// BrokerTime selects the time of an event's record that counts. BrokerTimeAppend, also "": the broker's, and the
	// topic must set it. BrokerTimeCreate: the producer's.
	BrokerTime string

	InstanceID   string // static membership under this name; "" for none
	Advertise    string // host:port where other instances reach this one's HTTP API; "" for nowhere
	AdvertiseTLS bool   // that API speaks TLS

	// SessionTimeout is the time without a heartbeat after which an instance's partitions move to others. 0 is 10 s.
	SessionTimeout time.Duration

	// AcceptNewTopic continues although a topic was recreated: its records are counted from its
	// start.
	AcceptNewTopic bool

	// ForwardWhole has all instances of the group forward events one by one and whole, as programs did that
	// read no packs.
	ForwardWhole bool

	dial func(ctx context.Context, network, addr string) (net.Conn, error) // to other instances, for tests; nil: the network

	packAfter time.Duration // tests change it; 0 is 3 s, a little longer than members take to get new rules

	CheckpointEvery time.Duration // 0 is 1 s

	// MaxBatchBytes bounds what a record batch may decompress to. A larger one is skipped, and
	// recorded as a range of offsets in the dead-letter topic. 0 is kafkalog.DefaultMaxBatch, 16
	// MiB.
	MaxBatchBytes int

	// BufferBytes bounds the memory for events on their way: fetched, decompressed and not counted, and
	// what waits to be sent of packs, forwards, dead letters and the audit. What keys' states take is beside
	// it. 0 is a quarter of Go's memory limit, from 64 MiB to 1 GiB, and 256 MiB where there is none.
	BufferBytes int64

	// A key is logged as hot if it has HotShare of its partition's events, and HotRate of them a
	// second. HotShare 0 is 0.1, and a negative one logs none; HotRate 0 is 100.
	HotShare, HotRate float64

	LogHotKeys bool // log hot keys themselves, not only their dimensions

	// Kafka changes the settings of connections. Nil changes nothing. Set TLS and SASL by a
	// Net.Proxy.Dialer, because not only sarama connects.
	Kafka func(*sarama.Config)

	// PeerTLS returns the client settings for other instances' APIs that speak TLS, anew for each
	// connection. Nil trusts the system's authorities, and shows no certificate.
	PeerTLS func() (*tls.Config, error)

	// Published receives every acknowledged verdict, in the order of the partition's offsets.
	// [first, next) holds the record, and nothing else that matters. It must not block. Nil
	// receives nothing.
	Published Published

	// Meeting shows the members of the group that use the same Redis. Nil: this instance has no Redis.
	Meeting Meeting
	Shards  int // of the blocklist in that Redis; the members compare it

	// Strict receives what owners say about strict limits, in the order of the partition's offsets.
	// Optional; without it nobody grants permits.
	Strict Strict

	// Tracer is told of events with a sampled trace context, and of their verdicts, and must not block.
	// Nil looks at no context. TraceEvery begins a trace for one of so many verdicts that have none; 0
	// for none.
	Tracer     Tracer
	TraceEvery uint64

	Registry prometheus.Registerer // nil registers no metrics
	Logger   *slog.Logger          // nil is slog.Default()

	peerKey string // the public key by which other members recognize this instance
}

// RuleFile is a rule set as an operator wrote it.
type RuleFile struct {
	Name     string    // of the file, for messages
	Source   []byte    // YAML
	Modified time.Time // when it was last changed

	// Files are the files that the source names, such as one with exemptions. If it is nil, Compile
	// reads them.
	Files map[string][]byte

	// Published marks a version of the rules that a group runs. Compile should accept as much as it
	// can that rule files may no longer contain, as rules.CompilePublished does. Otherwise this
	// instance cannot take over what the group has counted.
	Published bool
}

// Beside returns one of Files.
func (f RuleFile) Beside(name string) ([]byte, error) {
	if b, ok := f.Files[name]; ok {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

// Strict follows what the partitions that this instance owns say about strict limits.
type Strict = owner.Strict

// Tracer is told of traced events, and of their verdicts.
type Tracer = owner.Tracer

// Published follows the verdict partitions that this instance owns.
type Published = owner.Published

// VerdictRecord is an acknowledged record of the verdict topic.
type VerdictRecord = owner.VerdictRecord

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "tallygate")
	c.BrokerTime = cmp.Or(c.BrokerTime, brokerTimeAppend)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 10*time.Second)
	c.CheckpointEvery = cmp.Or(c.CheckpointEvery, time.Second)
	c.MaxBatchBytes = cmp.Or(c.MaxBatchBytes, kafkalog.DefaultMaxBatch)
	c.BufferBytes = cmp.Or(c.BufferBytes, bufferOf(debug.SetMemoryLimit(-1)))
	c.HotShare = cmp.Or(c.HotShare, 0.1)
	c.HotRate = cmp.Or(c.HotRate, 100)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// What a buffer has by default: see Config.BufferBytes.
const (
	leastBuffer   = 64 << 20
	defaultBuffer = 256 << 20
	mostBuffer    = 1 << 30
)

// bufferOf returns the default for a memory limit of Go's.
func bufferOf(limit int64) int64 {
	if limit == math.MaxInt64 {
		return defaultBuffer
	}
	return min(max(limit/4, leastBuffer), mostBuffer)
}

// leastMaxBatch is the size of the record with the largest array of events, with its batch.
const leastMaxBatch = 2 << 20

// The values of Config.BrokerTime.
const (
	brokerTimeAppend = "append"
	brokerTimeCreate = "create"
)

// member returns this instance's user data. It says nothing about rules that can change: all run the newest version.
func (c Config) member() topics.Member {
	m := topics.Member{Advertise: c.Advertise, TLS: c.AdvertiseTLS, Key: c.peerKey, Packs: !c.ForwardWhole, Redis: topics.WithoutRedis, BrokerTime: c.BrokerTime}
	if c.Meeting != nil {
		m.Redis, m.Shards = topics.WithRedis, c.Shards
	}
	if len(c.RuleFile.Source) == 0 {
		m.Rules = hex.EncodeToString(c.Rules.Hash[:])
	}
	return m
}

// defaultClient ends the client id of an instance without an instance id.
const defaultClient = "-aggregator"

func (c Config) compile(f RuleFile) (*rules.Set, error) {
	if c.Compile != nil {
		return c.Compile(f)
	}
	if f.Published {
		return rules.CompilePublished(f.Name, f.Source, f.Beside)
	}
	return rules.CompileWith(f.Name, f.Source, f.Beside)
}

func (c Config) validate() error {
	var errs []error
	if len(c.Brokers) == 0 {
		errs = append(errs, errors.New("no Kafka brokers"))
	}
	if c.Rules == nil {
		errs = append(errs, errors.New("no rules"))
	}
	if c.Partitions < 0 || c.Partitions > 10_000 {
		errs = append(errs, fmt.Errorf("%d partitions: 1 to 10000", c.Partitions))
	}
	if c.BrokerTime != brokerTimeAppend && c.BrokerTime != brokerTimeCreate {
		errs = append(errs, fmt.Errorf("broker time %q: append or create", c.BrokerTime))
	}
	if c.SessionTimeout < time.Second {
		errs = append(errs, fmt.Errorf("session timeout of %v: at least 1s", c.SessionTimeout))
	}
	if c.CheckpointEvery < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("a checkpoint every %v: at least 10ms", c.CheckpointEvery))
	}
	if c.MaxBatchBytes < leastMaxBatch {
		errs = append(errs, fmt.Errorf("record batches of up to %d bytes, decompressed: at least %d, which a batch of %d events takes", c.MaxBatchBytes, leastMaxBatch, event.MaxArray))
	}
	if c.BufferBytes < 1<<20 {
		errs = append(errs, fmt.Errorf("a buffer of %d bytes for events: at least %d", c.BufferBytes, 1<<20))
	}
	if !(c.HotShare <= 1) || !(c.HotRate >= 0) { // NaN is neither
		errs = append(errs, fmt.Errorf("a hot key's share of %v and %v events a second: want a share of at most 1, and a rate of at least 0", c.HotShare, c.HotRate))
	}
	if len(errs) > 0 {
		return fmt.Errorf("aggregator: %w", errors.Join(errs...))
	}
	return nil
}

// sarama returns the settings of every connection. The numbers were measured: see
// docs/internals/measurements.md.
func (c Config) sarama() *sarama.Config {
	s := goka.DefaultConfig()
	s.Version = sarama.V2_8_0_0
	s.ClientID = cmp.Or(c.InstanceID, c.Prefix+defaultClient)
	s.Net.DialTimeout, s.Net.WriteTimeout = 10*time.Second, 10*time.Second
	s.Net.ReadTimeout = 15 * time.Second // above what brokers may wait for replicas
	s.Consumer.Offsets.Initial = sarama.OffsetOldest
	s.Consumer.Group.ResetInvalidOffsets = false
	s.Consumer.Group.Session.Timeout = c.SessionTimeout
	s.Consumer.Group.Heartbeat.Interval = min(500*time.Millisecond, c.SessionTimeout/4)
	s.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{goka.CopartitioningStrategy}
	s.Consumer.Group.Rebalance.Retry.Max = 10
	s.Consumer.Group.Rebalance.Retry.Backoff = 500 * time.Millisecond
	s.Consumer.Group.InstanceId = c.InstanceID
	s.Consumer.Group.Member.UserData = c.member().UserData()
	s.Consumer.IsolationLevel = sarama.ReadCommitted
	s.Consumer.MaxWaitTime = 100 * time.Millisecond
	s.Consumer.Fetch.Default = 8 << 20
	s.Consumer.Return.Errors = true
	s.Producer.RequiredAcks = sarama.WaitForAll
	s.Producer.Return.Successes = true
	s.Producer.Return.Errors = true
	s.Producer.MaxMessageBytes = owner.AuxBatch
	s.Producer.Retry.Max, s.Producer.Retry.Backoff = owner.AuxRetries, 250*time.Millisecond
	s.Producer.Flush.Frequency = 5 * time.Millisecond
	s.Producer.Partitioner = sarama.NewHashPartitioner
	s.Metadata.Retry.Max = 4 // joining and rebuilding are retried without end, above this layer
	if c.Kafka != nil {
		c.Kafka(s)
	}
	return s
}
