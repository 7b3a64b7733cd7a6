package kafkalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What offsets are asked for beside those at a time, in milliseconds since the Unix epoch.
const (
	atEnd   = -1
	atStart = -2
)

// Ends asks where a topic's partitions end: at their high watermarks, whatever transactions are
// open below. What it learned comes with an error, too. It waits until Start was called.
func (f *Fetcher) Ends(ctx context.Context, topic string, partitions int32) (map[int32]int64, error) {
	return f.listOffsets(ctx, topic, partitions, atEnd, uncommitted)
}

// Starts asks where a topic's partitions start, as Ends does.
func (f *Fetcher) Starts(ctx context.Context, topic string, partitions int32) (map[int32]int64, error) {
	return f.listOffsets(ctx, topic, partitions, atStart, uncommitted)
}

// ReadableEnds asks where ends what this Fetcher reads: where the first transaction begins that is still
// open, unless it reads what is uncommitted.
func (f *Fetcher) ReadableEnds(ctx context.Context, topic string, partitions int32) (map[int32]int64, error) {
	return f.offsets(ctx, topic, partitions, atEnd)
}

// OffsetsAt asks for each partition's first record at a time or later; where there is none, for the
// partition's end.
func (f *Fetcher) OffsetsAt(ctx context.Context, topic string, partitions int32, at time.Time) (map[int32]int64, error) {
	found, err := f.offsets(ctx, topic, partitions, max(at.UnixMilli(), 0))
	if err != nil {
		return nil, err
	}
	ends, err := f.offsets(ctx, topic, partitions, atEnd)
	if err != nil {
		return nil, err
	}
	for id, end := range ends {
		if offset, ok := found[id]; !ok || offset < 0 || offset > end {
			found[id] = end
		}
	}
	return found, nil
}

// offsets are those of the first records at a time, -1 where none is that late, or the bounds of
// what this Fetcher reads: where the first transaction begins that is still open, it ends.
func (f *Fetcher) offsets(ctx context.Context, topic string, partitions int32, at int64) (map[int32]int64, error) {
	return f.listOffsets(ctx, topic, partitions, at, f.cfg.isolation())
}

func (f *Fetcher) listOffsets(ctx context.Context, topic string, partitions int32, at int64, isolation int8) (map[int32]int64, error) {
	client, err := f.connected(ctx)
	if err != nil {
		return nil, err
	}
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for id := range partitions {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = id, at
		t.Partitions = append(t.Partitions, p)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	req.Topics = append(req.Topics, t)
	found := map[int32]int64{}
	var errs []error
	for _, answer := range client.RequestSharded(ctx, req) { // each leader for its own
		if answer.Err != nil {
			errs = append(errs, answer.Err)
			continue
		}
		for _, t := range answer.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					errs = append(errs, err)
					continue
				}
				found[p.Partition] = p.Offset
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return found, fmt.Errorf("list offsets of %s: %w", topic, err)
	}
	return found, nil
}

// connected waits until Start was called.
func (f *Fetcher) connected(ctx context.Context) (*kgo.Client, error) {
	select {
	case <-f.running:
		return f.client.Load(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
