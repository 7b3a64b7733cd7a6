package topiclog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

// span is what is wanted of a partition: the offsets [from, to).
type span struct {
	partition int
	from, to  int64
}

func (l *Log) spans(ctx context.Context, from, to time.Time) ([]span, error) {
	partitions, err := l.partitions(ctx)
	if err != nil {
		return nil, err
	}
	// Each in a request of its own: kafka-go takes "no record is that late" for a log's end.
	first, err := l.offsets(ctx, partitions, kafka.FirstOffset)
	if err != nil {
		return nil, err
	}
	end, err := l.offsets(ctx, partitions, kafka.LastOffset)
	if err != nil {
		return nil, err
	}
	if !from.IsZero() {
		if first, err = l.at(ctx, partitions, from, end); err != nil {
			return nil, err
		}
	}
	if !to.IsZero() {
		if end, err = l.at(ctx, partitions, to, end); err != nil {
			return nil, err
		}
	}
	spans := make([]span, 0, len(partitions))
	for _, id := range partitions {
		spans = append(spans, span{id, first[id], end[id]})
	}
	return spans, nil
}

// at is the offsets of the first records at a time or later, and end where there is none.
func (l *Log) at(ctx context.Context, partitions []int, at time.Time, end map[int]int64) (map[int]int64, error) {
	found, err := l.offsets(ctx, partitions, max(at.UnixMilli(), 0))
	for id, offset := range found {
		if offset < 0 || offset > end[id] {
			found[id] = end[id]
		}
	}
	return found, err
}

func (l *Log) partitions(ctx context.Context) (ids []int, err error) {
	meta, err := l.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{l.name}})
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for topic %s: %w", l.name, err)
	}
	for _, t := range meta.Topics {
		if errors.Is(t.Error, kafka.UnknownTopicOrPartition) {
			return nil, fmt.Errorf("there is no topic %s: is its name right, or the prefix that it begins with?", l.name)
		}
		if t.Error != nil {
			return nil, fmt.Errorf("ask Kafka for topic %s: %w", l.name, t.Error)
		}
		for _, p := range t.Partitions {
			ids = append(ids, p.ID)
		}
	}
	return ids, nil
}

// offsets asks for the partitions' offsets at a time in Unix milliseconds, kafka.FirstOffset or
// kafka.LastOffset, which is where the first transaction begins that is still open. It is -1 where no record is that late.
func (l *Log) offsets(ctx context.Context, partitions []int, at int64) (map[int]int64, error) {
	ask := make([]kafka.OffsetRequest, 0, len(partitions))
	for _, id := range partitions {
		ask = append(ask, kafka.OffsetRequest{Partition: id, Timestamp: at})
	}
	res, err := l.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{IsolationLevel: kafka.ReadCommitted, Topics: map[string][]kafka.OffsetRequest{l.name: ask}})
	if err != nil {
		return nil, fmt.Errorf("list offsets of %s: %w", l.name, err)
	}
	found := make(map[int]int64, len(partitions))
	for _, o := range res.Topics[l.name] {
		if o.Error != nil {
			return nil, fmt.Errorf("list offsets of %s/%d: %w", l.name, o.Partition, o.Error)
		}
		found[o.Partition] = -1
		switch at {
		case kafka.FirstOffset:
			found[o.Partition] = o.FirstOffset
		case kafka.LastOffset:
			found[o.Partition] = o.LastOffset
		default:
			for offset := range o.Offsets { // one at most
				found[o.Partition] = offset
			}
		}
	}
	return found, nil
}
