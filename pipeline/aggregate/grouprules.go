package aggregate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/rules"
)

// ErrNoGroupRules says that no rules have been published for the group yet.
var ErrNoGroupRules = errors.New("aggregate: the group has no rules yet")

// GroupRules reads the newest version of the rules that the group of cfg runs, for an instance
// whose own file is broken. It uses only Compile, the prefix and what is about Kafka.
func GroupRules(ctx context.Context, cfg Config) (set *rules.Set, file RuleFile, version int64, err error) {
	cfg = cfg.withDefaults()
	cfg.RuleFile.Source = []byte("the group's") // member metadata is not used here
	s := cfg.sarama()
	s.Metadata.AllowAutoTopicCreation = false
	client, err := sarama.NewClient(cfg.Brokers, s)
	if err != nil {
		return nil, file, 0, fmt.Errorf("connect to Kafka at %v: %w", cfg.Brokers, err)
	}
	defer client.Close()
	reads, err := cfg.fetching()
	if err != nil {
		return nil, file, 0, err
	}
	logs, stop, err := kafkalog.Open(reads)
	if err != nil {
		return nil, file, 0, err
	}
	defer stop()
	var r ruleRecord
	err = whileElecting(ctx, cfg.Logger, func() error {
		r, version, err = newestRules(ctx, client, logs, topics.NamesOf(cfg.Prefix).Rules)
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

func newestRules(ctx context.Context, client sarama.Client, logs *kafkalog.Fetcher, topic string) (r ruleRecord, version int64, err error) {
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
	m, err := lastRules(ctx, func(ctx context.Context, from, to int64, each func(*kafkalog.Record) error) error {
		return logs.Scan(ctx, topic, [16]byte{}, 0, from, to, each)
	}, oldest, end)
	switch {
	case err != nil:
		return r, 0, fmt.Errorf("read %s: %w", topic, err)
	case m == nil:
		return r, 0, ErrNoGroupRules
	}
	if r, err = m.parse(); err != nil {
		return r, 0, fmt.Errorf("rules record at %d: %w", m.offset, err)
	}
	return r, m.offset + 1, nil
}
