// Package fenced writes to Kafka as the one owner of a partition.
//
// Whoever takes a partition over gets an Identity: the producer id of the transactional id
// "<group>-<partition>", with an epoch above that of every earlier owner. No transaction is
// ever begun. Each topic-partition that the owner writes to has a Writer of its own, whose
// first record is a fence record: from that append on the partition's leader refuses every
// batch of an older epoch, also of an owner that was paused and does not know that it was
// replaced. What the leader accepted from it earlier lies below the fence record's offset.
//
// A Writer has one batch in flight and numbers its records, so that a batch that is sent
// again after a lost answer is in the log once, and its offsets are exact.
package fenced

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
)

// Config says who writes, over which connections, and within which bounds.
type Config struct {
	// TransactionalID names the ownership: "<group>-<partition>". Required.
	TransactionalID string

	// Urgent carries batches with urgent records, fences and the calls to the coordinator;
	// Bulk carries the rest. A broker works on one request per connection, so they should
	// be of two clients. Urgent is required; Bulk is Urgent when nil.
	Urgent, Bulk *Link

	// BatchBytes bounds a batch, before compression; a single larger record goes alone.
	// Zero is 256 KiB.
	BatchBytes int

	// QueueBytes bounds what waits in a writer's queue: Append blocks above it. Urgent
	// records have as much again, so that they never wait for room behind bulk. Zero is 1 MiB.
	QueueBytes int

	// HeartbeatEvery is after how long without an append a writer repeats its fence record,
	// so that brokers don't forget the producer (producer.id.expiration.ms, a day). A writer
	// that could append nothing for twelve times as long takes itself for replaced: that must
	// be less than what brokers remember. Zero is an hour.
	HeartbeatEvery time.Duration

	// RefreshEvery is how often Identity.Run renews the producer id's epoch, so that the
	// coordinator doesn't forget it (transactional.id.expiration.ms, a week). Zero is a day.
	RefreshEvery time.Duration

	// MaxSequence is the record count of one epoch and partition at which the epoch is
	// renewed: sequences must not wrap. Zero is 2^30.
	MaxSequence int32

	// Codec compresses batches. Zero is lz4.
	Codec sarama.CompressionCodec

	// RequestTimeout is how long a leader waits for its replicas before it answers that it
	// timed out. It should be below the clients' Net.ReadTimeout. Zero is 10 s.
	RequestTimeout time.Duration

	// OnError is told of every attempt that failed, also of those that are made again. It must not block.
	// Nil is nobody.
	OnError func(error)

	// Log gets what is tried again and why. Nil is slog.Default().
	Log *slog.Logger
}

// Record is one record to append. A nil Value is a tombstone.
type Record struct {
	Key, Value []byte
	Headers    []sarama.RecordHeader
}

func (c Config) withDefaults() Config {
	c.Bulk = cmp.Or(c.Bulk, c.Urgent)
	c.BatchBytes = cmp.Or(c.BatchBytes, 256<<10)
	c.QueueBytes = cmp.Or(c.QueueBytes, 1<<20)
	c.HeartbeatEvery = cmp.Or(c.HeartbeatEvery, time.Hour)
	c.RefreshEvery = cmp.Or(c.RefreshEvery, 24*time.Hour)
	c.MaxSequence = cmp.Or(c.MaxSequence, 1<<30)
	c.Codec = cmp.Or(c.Codec, sarama.CompressionLZ4)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.TransactionalID == "" {
		errs = append(errs, errors.New("no TransactionalID"))
	}
	if c.Urgent == nil {
		errs = append(errs, errors.New("no Urgent link"))
	}
	for _, l := range []*Link{c.Urgent, c.Bulk} {
		if l != nil && !l.client.Config().Version.IsAtLeast(sarama.V2_7_0_0) {
			errs = append(errs, fmt.Errorf("the clients' Version is %v, at least 2.7.0 is needed to keep a producer id", l.client.Config().Version))
			break
		}
	}
	if c.BatchBytes < 0 || c.QueueBytes < 0 || c.MaxSequence < 0 {
		errs = append(errs, errors.New("negative BatchBytes, QueueBytes or MaxSequence"))
	}
	if c.HeartbeatEvery < 0 || c.RefreshEvery < 0 || c.RequestTimeout < 0 {
		errs = append(errs, errors.New("negative HeartbeatEvery, RefreshEvery or RequestTimeout"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("fenced: config: %w", err)
	}
	return nil
}
