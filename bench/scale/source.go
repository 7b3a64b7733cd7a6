package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
	"github.com/tallygate/tallygate/verdict"
)

// source is a verdict topic with one partition, and a publisher that copies it into Redis.
type source struct {
	prefix   string
	kafka    []string
	topic    string
	producer sarama.SyncProducer
	next     int64 // verdicts sent
	stop     context.CancelFunc
	stopped  chan error
}

func newSource(ctx context.Context, s settings) (*source, error) {
	src := &source{prefix: fmt.Sprintf("scale-%d", time.Now().UnixMilli()), kafka: s.kafka, stop: func() {}}
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	if _, err := topics.Ensure(ctx, s.kafka, cfg, topics.Config{Prefix: src.prefix, Partitions: 1}); err != nil {
		return nil, fmt.Errorf("create the topics: %w", err)
	}
	src.topic = topics.NamesOf(src.prefix).Verdicts
	var err error
	src.producer, err = sarama.NewSyncProducer(s.kafka, cfg)
	return src, err
}

func (s *source) close() error {
	s.stop()
	var err error
	if s.stopped != nil {
		err = <-s.stopped
	}
	return errors.Join(err, s.producer.Close())
}

// verdicts are blocks of some keys, as the aggregator writes them.
func (s *source) verdicts(from, to int) []verdict.Verdict {
	now := event.FromTime(time.Now())
	list := make([]verdict.Verdict, 0, to-from)
	for i := from; i < to; i++ {
		list = append(list, verdict.Verdict{
			Rule: "search-combined", Key: []event.Dim{{Name: "uid", Value: fmt.Sprintf("user-%07d", i)}}, Action: verdict.ActBlock,
			APIs: []string{"search.query", "search.suggest"}, Count: 101 * event.One, Limit: 100 * event.One,
			Since: now, Until: now + event.Hour, Seq: s.next + int64(i-from),
			Cause: verdict.Cause{ID: "01J8Z3K4M5" + strconv.Itoa(i), Partition: 3, Offset: 118204 + int64(i)},
		})
	}
	return list
}

// block sends verdicts on the keys from up to to.
func (s *source) block(from, to int) error {
	for ; from < to; from += 5000 {
		list := s.verdicts(from, min(to, from+5000))
		msgs := make([]*sarama.ProducerMessage, len(list))
		for i := range list {
			msgs[i] = &sarama.ProducerMessage{Topic: s.topic, Key: sarama.ByteEncoder(verdict.AppendRecordKey(nil, &list[i])),
				Value: sarama.ByteEncoder(verdict.AppendJSON(nil, &list[i]))}
		}
		if err := s.producer.SendMessages(msgs); err != nil {
			return fmt.Errorf("send verdicts: %w", err)
		}
		s.next += int64(len(list))
	}
	return nil
}

// flow sends a number of verdicts a second, a few every 10 ms, and returns how many there were.
func (s *source) flow(ctx context.Context, rate int, each time.Duration) (sent int, err error) {
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < each {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return sent, ctx.Err()
		}
		if due := int(time.Since(began).Seconds() * float64(rate)); due > sent {
			if err := s.block(sent, due); err != nil {
				return sent, err
			}
			sent = due
		}
	}
	return sent, nil
}

// publish starts the publisher.
func (s *source) publish(ctx context.Context, client *redis.Client) error {
	p, err := publish.New(publish.Config{
		Redis: client, Kafka: s.kafka, Topic: s.topic, Partitions: 1, Prefix: s.prefix, PublishOnly: true,
	})
	if err != nil {
		return err
	}
	ctx, s.stop = context.WithCancel(ctx)
	s.stopped = make(chan error, 1)
	go func() { s.stopped <- p.Run(ctx) }()
	return nil
}

// applied reports whether Redis has all that was sent.
func (s *source) applied(ctx context.Context, client *redis.Client) bool {
	text, err := client.HGet(ctx, s.key("verdicts"), "\x00reached:0").Result()
	n, perr := strconv.ParseInt(text, 10, 64)
	return err == nil && perr == nil && n >= s.next
}

// keyBytes is the memory of the blocklist's keys, the stream excepted.
func (s *source) keyBytes(ctx context.Context, client *redis.Client) (sum float64) {
	for _, k := range []string{"verdicts", "expiry"} {
		sum += float64(client.MemoryUsage(ctx, s.key(k), 1000).Val())
	}
	return sum
}

func (s *source) key(name string) string { return "{" + s.prefix + ":0}:" + name }
