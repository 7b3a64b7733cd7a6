package aggregate

import (
	"cmp"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/rules"
)

// Config says what an Aggregator reads, counts by and writes.
type Config struct {
	Brokers []string   // bootstrap addresses, host:port; required
	Rules   *rules.Set // required

	// RuleFile is what Rules was compiled from. With it the rules are the group's: the newest
	// version in the rules topic is what all instances run, and Reload publishes another.
	// Without it Rules is fixed.
	RuleFile RuleFile
	Compile  func(RuleFile) (*rules.Set, error) // nil is rules.CompileWith, or CompilePublished, with the RuleFile's Beside

	Prefix      string // of all topics, the group and the transactional ids; "" is tallygate
	Partitions  int32  // of the topics, when they are created; 0 is what exists, or 12
	Replication int16  // of the topics, when they are created; 0 is 3, or the number of brokers if that is less
	BrokerTime  string // "append" (also ""): events must carry the broker's append time; "create": the producer's time is taken

	InstanceID     string        // static membership under this name; "" for none
	Advertise      string        // host:port where other instances reach this one's HTTP API; "" for nowhere
	AdvertiseTLS   bool          // that API speaks TLS
	SessionTimeout time.Duration // without a heartbeat for this long, an instance's partitions go to others; 0 is 10 s
	AcceptNewTopic bool          // go on although a topic was recreated: its records are counted from its start

	CheckpointEvery time.Duration // 0 is 1 s

	// MaxBatchBytes is what a record batch may decompress to. A larger one is passed over, as a range of offsets
	// in the dead-letter topic. 0 is kafkalog.DefaultMaxBatch, 16 MiB.
	MaxBatchBytes int

	HotShare   float64 // the log tells of a key with this share of its partition's events; 0 is 0.1, negative tells of none
	HotRate    float64 // and at least this many of them a second; 0 is 100
	LogHotKeys bool    // the log names such keys; without it, it names their dimensions only

	// Kafka changes the settings of connections; nil changes nothing. TLS and SASL are done by a
	// Net.Proxy.Dialer: not only sarama connects.
	Kafka func(*sarama.Config)

	// PeerTLS gives the settings by which other instances' APIs are asked, when they speak TLS, for each
	// connection anew. Nil trusts the system's authorities, and shows no certificate.
	PeerTLS func() (*tls.Config, error)

	// Published is told of every acknowledged verdict, in the order of the partition's
	// offsets: [first, next) holds the records and nothing else that matters. It must not
	// block. Nil for nobody.
	Published Published

	Registry prometheus.Registerer // nil registers no metrics
	Logger   *slog.Logger          // nil is slog.Default()

	peerKey string // by which the group's members know this one
}

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
	c.HotShare = cmp.Or(c.HotShare, 0.1)
	c.HotRate = cmp.Or(c.HotRate, 100)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// leastMaxBatch is what a record of the largest array of events takes, with what is around it.
const leastMaxBatch = 2 << 20

// The values of Config.BrokerTime.
const (
	brokerTimeAppend = "append"
	brokerTimeCreate = "create"
)

// member is what the others are told. Of rules that can change nothing is said: all run the
// newest version.
func (c Config) member() topics.Member {
	m := topics.Member{Advertise: c.Advertise, TLS: c.AdvertiseTLS, Key: c.peerKey}
	if len(c.RuleFile.Source) == 0 {
		m.Rules = hex.EncodeToString(c.Rules.Hash[:])
	}
	return m
}

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
	if !(c.HotShare <= 1) || !(c.HotRate >= 0) { // NaN is neither
		errs = append(errs, fmt.Errorf("a hot key's share of %v and %v events a second: want a share of at most 1, and a rate of at least 0", c.HotShare, c.HotRate))
	}
	if len(errs) > 0 {
		return fmt.Errorf("aggregator: %w", errors.Join(errs...))
	}
	return nil
}

// sarama returns the settings of every connection. The numbers were measured: see docs/measured.md.
func (c Config) sarama() *sarama.Config {
	s := goka.DefaultConfig()
	s.Version = sarama.V2_8_0_0
	s.ClientID = cmp.Or(c.InstanceID, c.Prefix+"-aggregator")
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
	s.Metadata.Retry.Max = 4 // joining, and building anew, are tried for ever above
	if c.Kafka != nil {
		c.Kafka(s)
	}
	return s
}

// partitionOf returns the partition that owns a key: its uid's if it has one, else its text's.
func partitionOf(key []event.Dim, partitions int32) int32 {
	var text []byte
	for _, d := range key {
		if d.Name == "uid" {
			return event.Partition([]byte(d.Value), partitions)
		}
		text = event.AppendDim(text, d.Name, d.Value)
	}
	return event.Partition(text, partitions)
}
