package fetch

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Ends asks where a topic's partitions end: at their high watermarks, whatever transactions are open below.
// What it learned comes with an error, too. It waits until Run has begun.
func (f *Fetcher) Ends(ctx context.Context, topic string, partitions int32) (map[int32]int64, error) {
	return f.offsets(ctx, topic, partitions, -1)
}

// Starts asks where a topic's partitions start, as Ends does.
func (f *Fetcher) Starts(ctx context.Context, topic string, partitions int32) (map[int32]int64, error) {
	return f.offsets(ctx, topic, partitions, -2)
}

func (f *Fetcher) offsets(ctx context.Context, topic string, partitions int32, at int64) (map[int32]int64, error) {
	select {
	case <-f.running:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for id := range partitions {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = id, at
		t.Partitions = append(t.Partitions, p)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.Topics = append(req.Topics, t)
	found := map[int32]int64{}
	var errs []error
	for _, shard := range f.client.Load().RequestSharded(ctx, req) { // each leader for its own
		if shard.Err != nil {
			errs = append(errs, shard.Err)
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
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
