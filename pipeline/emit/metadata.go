package emit

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	// How often the leaders are looked up in kafka-go's copy of the metadata, which it renews
	// every few seconds: a topic that grew is noticed within ten.
	metadataEvery = time.Second

	// A partition that keeps failing must not keep the brokers busy with such questions.
	refreshEvery = 200 * time.Millisecond
)

// watch reports which broker leads each of the topic's partitions, whenever it looked, until
// ctx ends.
func (s *sender) watch(ctx context.Context) {
	for attempts := 0; ctx.Err() == nil; {
		leaders, err := s.leaders(ctx)
		pause := metadataEvery
		if err == nil {
			attempts = 0
			select {
			case s.layouts <- leaders:
			case <-ctx.Done():
				return
			}
		} else if ctx.Err() == nil {
			attempts++
			pause = backoff(attempts)
			s.failed(fmt.Errorf("find the partitions of %s: %w", s.cfg.Topic, err))
			s.forget()
		}
		select {
		case <-time.After(pause):
		case <-s.refresh:
			s.forget()
			select {
			case <-time.After(refreshEvery):
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
	}
}

// forget makes kafka-go ask for the metadata again at the next request: it drops its
// connections with it, for it has no other way. Requests on their way go on.
func (s *sender) forget() { s.transport.CloseIdleConnections() }

// leaders returns the leader's broker id for each partition, -1 where there is none now.
func (s *sender) leaders(ctx context.Context) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	client := kafka.Client{Addr: kafka.TCP(s.cfg.Brokers...), Transport: s.transport}
	res, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{s.cfg.Topic}})
	if err != nil {
		return nil, err
	}
	topic := res.Topics[0]
	if topic.Error != nil {
		return nil, topic.Error
	}
	if len(topic.Partitions) == 0 {
		return nil, kafka.LeaderNotAvailable
	}
	leaders := make([]int, len(topic.Partitions))
	for i := range leaders {
		leaders[i] = -1
	}
	for _, p := range topic.Partitions {
		// Without a leader kafka-go gives a zero Broker.
		if p.Leader.Host != "" && p.ID < len(leaders) {
			leaders[p.ID] = p.Leader.ID
		}
	}
	return leaders, nil
}
