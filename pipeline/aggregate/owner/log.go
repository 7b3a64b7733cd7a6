package owner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// Log is the group's topics as owners use them: to fence earlier owners, to append, and to read what these have
// left. It is Kafka; tests have one in memory.
type Log interface {
	// Acquire makes the caller the newest owner of a partition.
	Acquire(ctx context.Context, partition int32, log *slog.Logger) (Identity, error)
	Oldest(topic string, partition int32) (offset int64, err error)
	Newest(topic string, partition int32) (offset int64, err error)
	Committed(topic string, partition int32) (offset int64, err error) // by the group; -1: none
	EndOfEpoch(ctx context.Context, topic string, partition, epoch int32) (shard.EpochEnd, error)
	Scan(ctx context.Context, topic string, id [16]byte, partition int32, from, to int64, each func(*kafkalog.Record) error) error
}

// Identity is an owner's claim to its partition: see fenced.Identity.
type Identity interface {
	ProducerID() int64
	NewWriter(topic string, partition int32) Writer
	FenceOld(ctx context.Context, topic string, partition int32, producerID int64) (offset int64, err error)
	Refresh(ctx context.Context) error
	Run(ctx context.Context) error
}

// Writer appends to one topic-partition: see fenced.Writer.
type Writer interface {
	FenceAt(ctx context.Context) (offset int64, at time.Time, err error)
	Enqueue(rec fenced.Record, urgent bool, done fenced.Done) (full bool, err error)
	AwaitRoom(ctx context.Context) error
	WaitBelow(ctx context.Context, bytes int) error
	Flush(ctx context.Context) error
	Run(ctx context.Context) error
}

// Kafka is the Log that keeps what is appended.
type Kafka struct {
	Group   string
	Client  sarama.Client     // asks for offsets
	Urgent  *fenced.Link      // writes verdicts, and the states that they wait for
	Bulk    *fenced.Link      // writes everything else
	Claims  *kafkalog.Fetcher // reads the sources
	Logs    *kafkalog.Fetcher // reads changelogs: no claim waits for these
	OnError func(error)       // called for each failed append; must not block
}

// identity is one whose batches brokers refuse once it is replaced.
type identity struct {
	*fenced.Identity
	cfg fenced.Config
}

// Acquire asks the coordinator for a producer id with the next epoch.
func (k *Kafka) Acquire(ctx context.Context, partition int32, log *slog.Logger) (Identity, error) {
	cfg := fenced.Config{Urgent: k.Urgent, Bulk: k.Bulk, Log: log, OnError: k.OnError, TransactionalID: fmt.Sprintf("%s-%d", k.Group, partition)}
	id, err := fenced.Acquire(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return identity{id, cfg}, nil
}

// NewWriter returns the owner's writer to a topic-partition.
func (i identity) NewWriter(topic string, partition int32) Writer {
	return i.Identity.NewWriter(topic, partition)
}

// FenceOld excludes a forgotten producer id from a topic-partition.
func (i identity) FenceOld(ctx context.Context, topic string, partition int32, producerID int64) (int64, error) {
	return fenced.FenceOld(ctx, i.cfg, topic, partition, producerID)
}

// Oldest is the first offset that is there.
func (k *Kafka) Oldest(topic string, partition int32) (int64, error) {
	return k.Client.GetOffset(topic, partition, sarama.OffsetOldest)
}

// Newest is the offset of the next append.
func (k *Kafka) Newest(topic string, partition int32) (int64, error) {
	return k.Client.GetOffset(topic, partition, sarama.OffsetNewest)
}

// EndOfEpoch is not known of a broker before Kafka 2.0.
func (k *Kafka) EndOfEpoch(ctx context.Context, topic string, partition, epoch int32) (shard.EpochEnd, error) {
	end, err := k.Claims.EndOfEpoch(ctx, topic, partition, epoch)
	if errors.Is(err, kerr.UnsupportedVersion) {
		return shard.EpochEnd{}, nil
	}
	return shard.EpochEnd{Known: err == nil, Epoch: end.Epoch, End: end.End}, err
}

// Committed asks the group's coordinator.
func (k *Kafka) Committed(topic string, partition int32) (int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(k.Client)
	if err != nil {
		return -1, err
	}
	ask := func() (*sarama.OffsetFetchResponse, error) {
		return admin.ListConsumerGroupOffsets(k.Group, map[string][]int32{topic: {partition}})
	}
	offsets, err := ask()
	if err != nil { // sarama may remember a coordinator that is gone
		_ = k.Client.RefreshCoordinator(k.Group)
		offsets, err = ask()
	}
	if err == nil && !errors.Is(offsets.Err, sarama.ErrNoError) {
		err = offsets.Err
	}
	if err != nil {
		return -1, err
	}
	switch block := offsets.GetBlock(topic, partition); {
	case block == nil:
		return -1, nil
	case !errors.Is(block.Err, sarama.ErrNoError):
		return -1, block.Err
	default:
		return block.Offset, nil
	}
}

// Scan reads a changelog.
func (k *Kafka) Scan(ctx context.Context, topic string, id [16]byte, partition int32, from, to int64, each func(*kafkalog.Record) error) error {
	return k.Logs.Scan(ctx, topic, id, partition, from, to, each)
}
