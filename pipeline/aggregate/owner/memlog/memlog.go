// Package memlog is a group's topics in memory, for tests of what is above Kafka: it orders, numbers, stamps and fences
// appends as Kafka does, and waits for nothing. In a bubble of testing/synctest, what owners write to it is there when
// all goroutines wait.
//
// It proves nothing about Kafka: what brokers refuse, lose, repeat or take their time for is tested on one, and so is
// package fenced. What it has of Kafka is what owners' own code rests on:
//   - Offsets of a partition count from 0, without gaps, and a record's time is that of its append.
//   - From a fence record on, the partition takes nothing of an older epoch of the same producer.
//   - A writer's records are appended, and acknowledged, in their order. The answer comes from the writer's goroutine.
//
// Locks: a Log's and a writer's; neither is held while the other is taken, nor while an acknowledgement is told.
package memlog

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// Log is an owner.Log. Its methods may be called by any goroutine.
type Log struct {
	mu      sync.Mutex
	parts   map[place]*part
	epochs  map[int32]int16 // of the newest owners, by their partitions
	changed chan struct{}   // closed at the next append
}

type place struct {
	topic     string
	partition int32
}

// part is a partition of a topic. Nothing leaves it: neither retention nor compaction is played, so what a takeover
// must not take from old records shows.
type part struct {
	records []kafkalog.Record
	epochs  map[int64]int16 // by producer id: appends of an older one are refused
	full    bool            // see Room
	room    int
}

// New returns an empty log.
func New() *Log {
	return &Log{parts: map[place]*part{}, epochs: map[int32]int16{}, changed: make(chan struct{})}
}

// part returns a partition, which is there when it is asked for. l is locked.
func (l *Log) part(topic string, partition int32) *part {
	p := l.parts[place{topic, partition}]
	if p == nil {
		p = &part{epochs: map[int64]int16{}}
		l.parts[place{topic, partition}] = p
	}
	return p
}

// Append appends a record at the time that it is now, or at its own.
func (l *Log) Append(topic string, partition int32, rec kafkalog.Record) (offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.append(l.part(topic, partition), rec)
}

func (l *Log) append(p *part, rec kafkalog.Record) int64 {
	// Records are kept as they are, and readers share their bytes: who changes them changes the log.
	rec.Offset = int64(len(p.records))
	if rec.Timestamp == 0 {
		rec.Timestamp = time.Now().UnixMilli()
	}
	rec.Key, rec.Value = slices.Clone(rec.Key), slices.Clone(rec.Value) // they are the writer's
	p.records = append(p.records, rec)
	l.change()
	return rec.Offset
}

// change wakes all who wait for something to read, or for room. l is locked.
func (l *Log) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Records returns a partition's records from an offset on, also those that owners write for themselves: fences and
// checkpoints.
func (l *Log) Records(topic string, partition int32, from int64) []kafkalog.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.part(topic, partition).records
	return slices.Clone(all[min(from, int64(len(all))):])
}

// Changed returns what is closed at the next append, or when there is room again.
func (l *Log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Room lets writers append so many records to a topic's partition, and wait then; any number if it is negative.
func (l *Log) Room(topic string, partition int32, records int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.part(topic, partition)
	p.full, p.room = records >= 0, records
	l.change()
}

// Oldest is 0: nothing is deleted.
func (l *Log) Oldest(string, int32) (int64, error) { return 0, nil }

// Newest is the offset of the next append.
func (l *Log) Newest(topic string, partition int32) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.part(topic, partition).records)), nil
}

// Committed is none: checkpoints say where to continue.
func (l *Log) Committed(string, int32) (int64, error) { return -1, nil }

// EndOfEpoch is not known: no record has an epoch.
func (l *Log) EndOfEpoch(context.Context, string, int32, int32) (shard.EpochEnd, error) {
	return shard.EpochEnd{}, nil
}

// Scan calls each with the records from one offset up to another.
func (l *Log) Scan(_ context.Context, topic string, _ [16]byte, partition int32, from, to int64, each func(*kafkalog.Record) error) error {
	for _, rec := range l.Records(topic, partition, from) {
		if rec.Offset >= to {
			break
		}
		if err := each(&rec); err != nil {
			return err
		}
	}
	return nil
}

// Acquire issues the partition's next epoch. The owner before may go on until it meets a fence of this one, as with
// Kafka: to be issued an epoch fences nobody.
func (l *Log) Acquire(_ context.Context, partition int32, _ *slog.Logger) (owner.Identity, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epochs[partition]++
	return &identity{log: l, of: partition, epoch: l.epochs[partition]}, nil
}

// identity has the same producer id as all owners of its partition: the coordinator forgets none, so no takeover finds
// fences of a producer that has expired.
type identity struct {
	log   *Log
	of    int32
	epoch int16
}

const firstProducer = 100 // so that a producer id is not taken for a partition

func (id *identity) ProducerID() int64 { return firstProducer + int64(id.of) }

func (id *identity) NewWriter(topic string, partition int32) owner.Writer {
	return &writer{id: id, topic: topic, partition: partition, work: make(chan struct{}, 1), less: make(chan struct{})}
}

// FenceOld uses the greatest epoch, as fenced.FenceOld does.
func (id *identity) FenceOld(_ context.Context, topic string, partition int32, pid int64) (int64, error) {
	return id.log.fence(topic, partition, pid, math.MaxInt16)
}

// Refresh keeps the epoch of an owner that is the newest.
func (id *identity) Refresh(context.Context) error {
	id.log.mu.Lock()
	defer id.log.mu.Unlock()
	if id.log.epochs[id.of] != id.epoch {
		return fenced.ErrFenced
	}
	return nil
}

// Run has nothing to renew: epochs do not expire.
func (id *identity) Run(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// fence appends a fence record. Older epochs of the producer id can append no more.
func (l *Log) fence(topic string, partition int32, pid int64, epoch int16) (int64, error) {
	value, err := json.Marshal(fenced.FenceRecord{TransactionalID: "memory", ProducerID: pid, Epoch: epoch, At: time.Now().UTC()})
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.part(topic, partition)
	if epoch < p.epochs[pid] {
		return 0, fmt.Errorf("append to %s/%d: %w", topic, partition, fenced.ErrFenced)
	}
	p.epochs[pid] = epoch
	return l.append(p, kafkalog.Record{Key: strconv.AppendInt([]byte("\x00fence/"), pid, 10), Value: value}), nil
}
