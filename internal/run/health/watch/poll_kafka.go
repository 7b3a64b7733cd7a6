package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
)

// kafkaPoll asks brokers.
type kafkaPoll struct {
	transport *kafka.Transport
	client    *kafka.Client
	prefix    string
	end       int64 // of the event topic, when it was seen last; -1: never
	moved     time.Time
}

func newKafkaPoll(k *kafkaconn.Kafka, prefix string) *kafkaPoll {
	t := k.Transport()
	t.ClientID, t.MetadataTTL = "tallygate-console", time.Second
	return &kafkaPoll{transport: t, client: &kafka.Client{Addr: kafka.TCP(k.Brokers...), Transport: t}, prefix: prefix, end: -1}
}

func (k *kafkaPoll) close() { k.transport.CloseIdleConnections() }

func (k *kafkaPoll) read(ctx context.Context) (health.Kafka, error) {
	events, verdicts := k.prefix+".events", k.prefix+".verdicts"
	md, err := k.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{events, verdicts}})
	if err != nil {
		return health.Kafka{}, fmt.Errorf("ask Kafka about its topics: %w", err)
	}
	is := health.Kafka{Brokers: len(md.Brokers)}
	if is.Events, err = topicOf(md, events); err != nil {
		return is, err
	}
	if is.Verdicts, err = topicOf(md, verdicts); err != nil {
		return is, err
	}
	if err := k.ends(ctx, &is.Events, &is.Verdicts); err != nil {
		return is, err
	}
	is.Committed = k.committed(ctx, &is.Events)
	if end := is.Events.End(); end != k.end {
		if k.end >= 0 {
			k.moved = time.Now()
		}
		k.end = end
	}
	is.Moved = k.moved
	return is, nil
}

func topicOf(md *kafka.MetadataResponse, name string) (health.Topic, error) {
	t := health.Topic{Name: name, Missing: true, Ends: map[int32]int64{}}
	for _, m := range md.Topics {
		switch {
		case m.Name != name:
		case m.Error == nil:
			t.Missing, t.Partitions = false, len(m.Partitions)
			for _, p := range m.Partitions {
				if p.Error != nil && !errors.Is(p.Error, kafka.ReplicaNotAvailable) || p.Leader.Host == "" {
					t.Leaderless = append(t.Leaderless, int32(p.ID)) //nolint:gosec // a partition's number
				} else if len(p.Isr) < len(p.Replicas) {
					t.Thin = append(t.Thin, int32(p.ID)) //nolint:gosec // a partition's number
				}
			}
			slices.Sort(t.Leaderless)
			slices.Sort(t.Thin)
		case !errors.Is(m.Error, kafka.UnknownTopicOrPartition):
			return t, fmt.Errorf("look at the topic %s: %w", name, m.Error)
		}
	}
	return t, nil
}

// ends asks the partitions' leaders, so that it is a sign of life of each broker: metadata may be remembered.
func (k *kafkaPoll) ends(ctx context.Context, all ...*health.Topic) error {
	req := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{}}
	for _, t := range all {
		for p := range t.Partitions {
			if !slices.Contains(t.Leaderless, int32(p)) { //nolint:gosec // a partition's number
				req.Topics[t.Name] = append(req.Topics[t.Name], kafka.LastOffsetOf(p))
			}
		}
	}
	if len(req.Topics) == 0 {
		return nil
	}
	answer, err := k.client.ListOffsets(ctx, req)
	if err != nil {
		return fmt.Errorf("ask Kafka where its topics end: %w", err)
	}
	for _, t := range all {
		for _, p := range answer.Topics[t.Name] {
			if p.Error != nil {
				return fmt.Errorf("ask Kafka where %s ends: %w", t.Name, p.Error)
			}
			t.Ends[int32(p.Partition)] = p.LastOffset //nolint:gosec // a partition's number
		}
	}
	return nil
}

// committed is nil if the group's offsets cannot be read: nothing depends on them while aggregators answer.
func (k *kafkaPoll) committed(ctx context.Context, events *health.Topic) map[int32]int64 {
	if events.Partitions == 0 {
		return nil
	}
	all := make([]int, events.Partitions)
	for p := range all {
		all[p] = p
	}
	answer, err := k.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: k.prefix, Topics: map[string][]int{events.Name: all}})
	if err != nil || answer.Error != nil {
		return nil
	}
	found := map[int32]int64{}
	for _, p := range answer.Topics[events.Name] {
		if p.Error == nil && p.CommittedOffset >= 0 {
			found[int32(p.Partition)] = p.CommittedOffset //nolint:gosec // a partition's number
		}
	}
	return found
}
