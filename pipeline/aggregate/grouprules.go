package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/rules"
)

// ErrNoGroupRules says that nobody has published rules for the group yet.
var ErrNoGroupRules = errors.New("aggregate: the group has no rules yet")

// GroupRules reads the newest version of the rules that the group of cfg runs, for an instance whose own
// file is broken. Of cfg only what is about Kafka, the prefix and Compile matter.
func GroupRules(ctx context.Context, cfg Config) (set *rules.Set, file RuleFile, version int64, err error) {
	cfg = cfg.withDefaults()
	cfg.RuleFile.Source = []byte("the group's") // what members tell each other is not looked at
	s := cfg.sarama()
	s.Metadata.AllowAutoTopicCreation = false
	client, err := sarama.NewClient(cfg.Brokers, s)
	if err != nil {
		return nil, file, 0, fmt.Errorf("connect to Kafka at %v: %w", cfg.Brokers, err)
	}
	defer client.Close()
	var r ruleRecord
	err = whileElecting(ctx, cfg.Logger, func() error {
		r, version, err = newestRules(ctx, client, topics.NamesOf(cfg.Prefix).Rules)
		return err
	})
	if err != nil {
		return nil, file, 0, err
	}
	file = r.ruleFile()
	if set, err = cfg.compile(file); err != nil {
		return nil, file, 0, r.refused(version, err)
	}
	return set, file, version, nil
}

func newestRules(ctx context.Context, client sarama.Client, topic string) (r ruleRecord, version int64, err error) {
	all, err := client.Topics()
	if err != nil {
		return r, 0, fmt.Errorf("list the topics: %w", err)
	}
	if !slices.Contains(all, topic) {
		return r, 0, ErrNoGroupRules
	}
	oldest, err := client.GetOffset(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return r, 0, fmt.Errorf("find the start of %s: %w", topic, err)
	}
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	if err != nil {
		return r, 0, fmt.Errorf("find the end of %s: %w", topic, err)
	}
	if oldest >= end {
		return r, 0, ErrNoGroupRules
	}
	m, err := readRules(ctx, client, topic, oldest, end)
	switch {
	case err != nil:
		return r, 0, fmt.Errorf("read %s: %w", topic, err)
	case m == nil:
		return r, 0, ErrNoGroupRules
	}
	if err := json.Unmarshal(m.Value, &r); err != nil {
		return r, 0, fmt.Errorf("rules record at %d: %w", m.Offset, err)
	}
	if r.Format != ruleRecordFormat {
		return r, 0, fmt.Errorf("%w: rules record of format %d, this program reads %d", shard.ErrNewerFormat, r.Format, ruleRecordFormat)
	}
	return r, m.Offset + 1, nil
}

// readRules returns the last record that holds rules at offsets [from, end).
func readRules(ctx context.Context, client sarama.Client, topic string, from, end int64) (*sarama.ConsumerMessage, error) {
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	pc, err := consumer.ConsumePartition(topic, 0, from)
	if err != nil {
		return nil, err
	}
	defer pc.AsyncClose()
	ctx, cancel := context.WithTimeout(ctx, rulesWithin)
	defer cancel()
	return lastRules(ctx, pc, end)
}

// lastRules reads up to an offset. A consumer ends by closing its channels, as when retention has moved
// the topic's start beyond where it reads.
func lastRules(ctx context.Context, from interface {
	Messages() <-chan *sarama.ConsumerMessage
	Errors() <-chan *sarama.ConsumerError
}, end int64) (last *sarama.ConsumerMessage, err error) {
	errEnded := errors.New("the records are gone, or Kafka gave up sending them")
	for {
		select {
		case m, ok := <-from.Messages():
			if !ok {
				return nil, errEnded
			}
			if string(m.Key) == ruleRecordKey && m.Offset < end {
				last = m
			}
			if m.Offset >= end-1 {
				return last, nil
			}
		case err, ok := <-from.Errors():
			if !ok {
				return nil, errEnded
			}
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
