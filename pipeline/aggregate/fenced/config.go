// Package fenced writes to Kafka as the only owner of a partition.
//
// Each new owner of a partition gets an Identity: the producer id of the transactional id
// "<group>-<partition>", with an epoch above that of every earlier owner. It never begins a
// transaction. Each topic-partition that the owner writes to has its own Writer, whose first record
// is a fence record. From that append on, the partition's leader refuses every batch of an older
// epoch, even from an owner that was paused and does not know that it was replaced. What the leader
// accepted from it earlier lies below the fence record's offset.
//
// A Writer has one batch in flight and numbers its records. So a batch that is sent again after a
// lost answer is in the log once, and its offsets are exact.
//
// Writers share a Link: a few connections to each broker. What several of them append to one broker
// while its connections are in use goes there in one request. Each has its own part of the answer.
//
// Lock order: a Writer's slot, the Identity's batches, then the mu of either, never both; a Link's
// mu, then a node's. Callbacks run without a mu.
package fenced

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
)

// Config configures an owner: its name, its connections and its bounds.
type Config struct {
	// TransactionalID names the ownership: "<group>-<partition>". Required.
	TransactionalID string

	// Urgent carries batches with urgent records, fences and requests to the coordinator. Bulk
	// carries the rest. They should be two, so that what is urgent never waits for a checkpoint's
	// requests. Urgent is required; a nil Bulk is Urgent.
	Urgent, Bulk *Link

	// BatchBytes bounds a batch before compression. A single larger record goes alone. Zero is 256
	// KiB.
	BatchBytes int

	// QueueBytes bounds a writer's queue: Append blocks above it. Urgent records may use as much
	// again, so that they never wait for room behind bulk. Zero is 1 MiB.
	QueueBytes int

	// HeartbeatEvery is after how long without an append a writer repeats its fence record, so that
	// brokers do not forget the producer (producer.id.expiration.ms, a day). A writer that could
	// append nothing for twelve times as long assumes that it was replaced. That must be less than
	// what brokers remember. Zero is an hour.
	HeartbeatEvery time.Duration

	// RefreshEvery is the interval at which Identity.Run renews the producer id's epoch, so that the coordinator does
	// not forget it (transactional.id.expiration.ms, a week). Zero is a day.
	RefreshEvery time.Duration

	// MaxSequence is the number of records of one epoch and partition after which the epoch is
	// renewed, because sequences must not wrap. Zero is 2^30.
	MaxSequence int32

	// Codec compresses batches. Zero is lz4.
	Codec sarama.CompressionCodec

	// RequestTimeout bounds a leader's wait for its replicas before it answers with a timeout. It should be below the
	// clients' Net.ReadTimeout. Zero is 10 s.
	RequestTimeout time.Duration

	// OnError is called for every failed attempt, also if it is repeated. It must not block. Nil is
	// not called.
	OnError func(error)

	// Log receives what is retried and why. Nil is slog.Default().
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
