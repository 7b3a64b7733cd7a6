package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

const (
	fetchBytes   = 1 << 20 // as much as the largest batch that brokers take by default
	fetchTimeout = 10 * time.Second
)

// topic reads the verdict topic, one partition at a time, from any offset.
type topic struct {
	client *kafka.Client
	name   string
	turn   chan struct{} // of whoever reads what is there already; nil: all do at once
}

// fetched is what one fetch brought: the records at offsets [from, next) that are not an owner's
// own.
type fetched struct {
	records []Record
	next    int64
	end     int64 // the partition's end: all acknowledged records lie below
}

// fetch reads from an offset on; it waits up to wait for something to be there. It skips offsets
// that the log has deleted. It is an error if from is past the log's end.
func (t *topic) fetch(ctx context.Context, partition int32, from int64, wait time.Duration) (fetched, error) {
	if wait == 0 && t.turn != nil {
		// kafka-go allocates 64 KiB per batch, and verdicts that were issued one by one are a batch
		// each.
		select {
		case t.turn <- struct{}{}:
			defer func() { <-t.turn }()
		case <-ctx.Done():
			return fetched{}, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout+wait)
	defer cancel()
	res, err := t.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: t.name, Partition: int(partition), Offset: from,
		MinBytes: 1, MaxBytes: fetchBytes, MaxWait: max(wait, time.Millisecond),
	})
	if err != nil {
		return fetched{}, fmt.Errorf("fetch %s/%d: %w", t.name, partition, err)
	}
	if errors.Is(res.Error, kafka.OffsetOutOfRange) {
		return t.outOfRange(ctx, partition, from)
	}
	if res.Error != nil {
		return fetched{}, fmt.Errorf("fetch %s/%d: %w", t.name, partition, res.Error)
	}
	f := fetched{next: from, end: res.HighWatermark}
	if err := f.read(res.Records); err != nil {
		return fetched{}, fmt.Errorf("fetch %s/%d: %w", t.name, partition, err)
	}
	if f.next == from && from < f.end {
		// All that the batch had from here on was compacted away, and kafka-go doesn't tell where
		// the batch ends. Broker and offset agree again at some offset soon.
		f.next++
	}
	return f, nil
}

// outOfRange tells a log that has deleted its beginning from one that is another log.
func (t *topic) outOfRange(ctx context.Context, partition int32, from int64) (fetched, error) {
	res, err := t.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		t.name: {kafka.FirstOffsetOf(int(partition)), kafka.LastOffsetOf(int(partition))},
	}})
	if err != nil {
		return fetched{}, fmt.Errorf("list offsets of %s/%d: %w", t.name, partition, err)
	}
	for _, o := range res.Topics[t.name] {
		switch {
		case o.Partition != int(partition):
		case o.Error != nil:
			return fetched{}, fmt.Errorf("list offsets of %s/%d: %w", t.name, partition, o.Error)
		case from < o.FirstOffset:
			return fetched{next: o.FirstOffset, end: o.LastOffset}, nil
		case from > o.LastOffset:
			return fetched{}, fmt.Errorf("%s/%d ends at offset %d, but Redis has reached %d: the topic was recreated or truncated, "+
				"or Redis belongs to another cluster; delete the blocklist's keys from Redis to fill it anew", t.name, partition, o.LastOffset, from)
		}
	}
	return fetched{}, fmt.Errorf("fetch %s/%d: %w", t.name, partition, kafka.OffsetOutOfRange)
}

func (f *fetched) read(records kafka.RecordReader) error {
	stream, ok := records.(*protocol.RecordStream)
	if !ok {
		return f.readBatch(records)
	}
	for _, batch := range stream.Records {
		switch b := batch.(type) {
		case *protocol.ControlBatch: // a transaction marker
			f.next = max(f.next, b.BaseOffset+1)
			continue
		case *protocol.RecordBatch:
			f.next = max(f.next, b.BaseOffset)
		}
		if err := f.readBatch(batch); err != nil {
			return err
		}
	}
	return nil
}

// readBatch takes a batch's records. It may begin below the offset that was asked for.
func (f *fetched) readBatch(records kafka.RecordReader) error {
	for {
		r, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read records: %w", err)
		}
		key, err := kafka.ReadAll(r.Key)
		if err == nil {
			var value []byte
			if value, err = kafka.ReadAll(r.Value); err == nil && r.Offset >= f.next {
				f.add(Record{Offset: r.Offset, Key: key, Value: value, Time: event.FromTime(r.Time)})
			}
		}
		closeBytes(r.Key)
		closeBytes(r.Value)
		if err != nil {
			return fmt.Errorf("read record at offset %d: %w", r.Offset, err)
		}
	}
}

func closeBytes(b kafka.Bytes) {
	if b != nil {
		_ = b.Close() // returns pages to a pool; it has nothing to fail
	}
}

func (f *fetched) add(r Record) {
	f.next = r.Offset + 1
	// A transaction marker's key begins with NUL, too.
	if len(r.Key) > 0 && !verdict.OwnRecord(r.Key) {
		f.records = append(f.records, r)
	}
}
