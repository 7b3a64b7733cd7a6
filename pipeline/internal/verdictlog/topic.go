// Package verdictlog serves publishers: it reads the verdict topic from any offset, and keeps what owners offer of
// it.
package verdictlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/tallygate/tallygate/event"
)

const (
	fetchBytes   = 1 << 20 // as much as the largest batch that brokers take by default
	fetchTimeout = 10 * time.Second
)

// Record is a record of the verdict topic.
type Record struct {
	Offset     int64
	Key, Value []byte
	Time       event.Micros // the broker's
}

// Topic reads the verdict topic, one partition at a time, from any offset.
type Topic struct {
	Client *kafka.Client
	Name   string
	Turn   chan struct{}         // of whoever reads what is there already; nil: all do at once
	Skip   func(key []byte) bool // records to leave out
	Keys   string                // whose keys in Redis hold the offsets that are asked for, for an error
}

// Fetched is the result of one fetch: the records at offsets [from, Next) that are not left out.
type Fetched struct {
	Records []Record
	Next    int64
	End     int64 // the partition's end: all acknowledged records lie below
	Gap     bool  // there are no records any more at some of the offsets
}

// Fetch reads from an offset on; it waits up to wait for something to be there. It skips offsets
// that the log has deleted. It is an error if from is past the log's end.
func (t *Topic) Fetch(ctx context.Context, partition int32, from int64, wait time.Duration) (Fetched, error) {
	if wait == 0 && t.Turn != nil {
		// kafka-go allocates 64 KiB per batch, and verdicts that were issued one by one are a batch
		// each.
		select {
		case t.Turn <- struct{}{}:
			defer func() { <-t.Turn }()
		case <-ctx.Done():
			return Fetched{}, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout+wait)
	defer cancel()
	res, err := t.fetch(ctx, partition, from, wait)
	if err != nil {
		return Fetched{}, fmt.Errorf("fetch %s/%d: %w", t.Name, partition, err)
	}
	if errors.Is(res.Error, kafka.OffsetOutOfRange) {
		return t.outOfRange(ctx, partition, from)
	}
	if res.Error != nil {
		return Fetched{}, fmt.Errorf("fetch %s/%d: %w", t.Name, partition, res.Error)
	}
	f := Fetched{Next: from, End: res.HighWatermark}
	if err := f.read(res.Records, t.Skip); err != nil {
		return Fetched{}, fmt.Errorf("fetch %s/%d: %w", t.Name, partition, err)
	}
	if f.Next == from && from < f.End {
		// All that the batch had from here on was compacted away, and kafka-go doesn't tell where
		// the batch ends. Broker and offset agree again at some offset soon.
		f.Next++
		f.Gap = true
	}
	return f, nil
}

// fetch asks again, over another connection, when the broker closed the one that it asked over: brokers do so where
// sessions end after a while (connections.max.reauth.ms), and nothing is wrong then.
func (t *Topic) fetch(ctx context.Context, partition int32, from int64, wait time.Duration) (res *kafka.FetchResponse, err error) {
	const connections = 3 // a few may have ended
	for range connections {
		res, err = t.Client.Fetch(ctx, &kafka.FetchRequest{
			Topic: t.Name, Partition: int(partition), Offset: from,
			MinBytes: 1, MaxBytes: fetchBytes, MaxWait: max(wait, time.Millisecond),
		})
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
	}
	return res, err
}

// outOfRange tells a log that has deleted its beginning from one that is another log.
func (t *Topic) outOfRange(ctx context.Context, partition int32, from int64) (Fetched, error) {
	res, err := t.Client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		t.Name: {kafka.FirstOffsetOf(int(partition)), kafka.LastOffsetOf(int(partition))},
	}})
	if err != nil {
		return Fetched{}, fmt.Errorf("list offsets of %s/%d: %w", t.Name, partition, err)
	}
	for _, o := range res.Topics[t.Name] {
		switch {
		case o.Partition != int(partition):
		case o.Error != nil:
			return Fetched{}, fmt.Errorf("list offsets of %s/%d: %w", t.Name, partition, o.Error)
		case from < o.FirstOffset:
			return Fetched{Next: o.FirstOffset, End: o.LastOffset, Gap: true}, nil
		case from > o.LastOffset:
			return Fetched{}, fmt.Errorf("%s/%d ends at offset %d, but Redis has reached %d: the topic was recreated or truncated, "+
				"or Redis belongs to another cluster; delete %s keys from Redis to fill it anew", t.Name, partition, o.LastOffset, from, t.Keys)
		}
	}
	return Fetched{}, fmt.Errorf("fetch %s/%d: %w", t.Name, partition, kafka.OffsetOutOfRange)
}

func (f *Fetched) read(records kafka.RecordReader, skip func([]byte) bool) error {
	stream, ok := records.(*protocol.RecordStream)
	if !ok {
		return f.readBatch(records, skip)
	}
	for _, batch := range stream.Records {
		switch b := batch.(type) {
		case *protocol.ControlBatch: // a transaction marker
			f.reached(b.BaseOffset)
			continue
		case *protocol.RecordBatch:
			f.Gap = f.Gap || b.BaseOffset > f.Next
			f.Next = max(f.Next, b.BaseOffset)
		}
		if err := f.readBatch(batch, skip); err != nil {
			return err
		}
	}
	return nil
}

// readBatch takes a batch's records. It may begin below the offset that was asked for.
func (f *Fetched) readBatch(records kafka.RecordReader, skip func([]byte) bool) error {
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
			if value, err = kafka.ReadAll(r.Value); err == nil && r.Offset >= f.Next {
				f.add(Record{Offset: r.Offset, Key: key, Value: value, Time: event.FromTime(r.Time)}, skip)
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

func (f *Fetched) add(r Record, skip func([]byte) bool) {
	f.reached(r.Offset)
	if len(r.Key) > 0 && !skip(r.Key) {
		f.Records = append(f.Records, r)
	}
}

// reached notes that the log has something at an offset.
func (f *Fetched) reached(offset int64) {
	f.Gap = f.Gap || offset > f.Next
	f.Next = max(f.Next, offset+1)
}
