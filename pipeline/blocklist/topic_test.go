package blocklist

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTransactionMarkersAreSkipped(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), newMemory()
		tx, err := kgo.NewClient(kgo.SeedBrokers(kafka.addrs...), kgo.TransactionalID("a foreign writer"), kgo.DefaultProduceTopic(testTopic))
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Close()
		for _, uid := range []string{"1", "2"} {
			r := record(block(uid, 1, time.Hour))
			if err := tx.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := tx.ProduceSync(t.Context(), &kgo.Record{Key: r.Key, Value: r.Value}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := tx.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
		}
		p, _ := kafka.publisher(client, func(c *PublisherConfig) { c.PublishOnly = true })
		startFeed(t, client, sink, nil)
		eventually(t, "both are blocked", func() bool { return sink.has("uid=1|r") && sink.has("uid=2|r") })
		eventually(t, "the end is reached, behind a marker", func() bool { return p.Stats().Partitions[0].Reached == 4 })
	})
}

func TestALogThatHasDeletedItsBeginning(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), newMemory()
		for _, uid := range []string{"1", "2", "3"} {
			kafka.write(0, record(block(uid, 1, time.Hour)))
		}
		req := kmsg.NewPtrDeleteRecordsRequest()
		topic := kmsg.NewDeleteRecordsRequestTopic()
		topic.Topic = testTopic
		partition := kmsg.NewDeleteRecordsRequestTopicPartition()
		partition.Offset = 2
		topic.Partitions = append(topic.Partitions, partition)
		req.Topics = append(req.Topics, topic)
		if _, err := req.RequestWith(t.Context(), kafka.client); err != nil {
			t.Fatal(err)
		}
		p, _ := kafka.publisher(client, nil)
		p.Own(0)
		startFeed(t, client, sink, nil)
		eventually(t, "what is left is blocked", func() bool { return sink.has("uid=3|r") })
		if got := sink.text(); len(got) != 1 {
			t.Errorf("%v, want the third only", got)
		}
	})
}

func TestATopicThatWasRecreatedIsReported(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), newMemory()
		kafka.write(0, record(block("1", 1, time.Hour)))
		s := testStore(t, client)
		if _, ok, err := s.apply(t.Context(), batch{start: 0, next: 1000}); err != nil || !ok {
			t.Fatal(ok, err)
		}
		p, _ := kafka.publisher(client, nil)
		p.Own(0)
		startFeed(t, client, sink, nil)
		eventually(t, "it is reported", func() bool {
			s := p.Stats()
			return s.Failing && s.LastError != nil && strings.Contains(s.LastError.Error(), "delete the blocklist's keys")
		})
		if err := client.FlushAll(context.Background()).Err(); err != nil { // as it says
			t.Fatal(err)
		}
		p.Disown(0)
		p.Own(0)
		eventually(t, "1 is blocked", func() bool { return sink.has("uid=1|r") && !p.Stats().Failing })
	})
}

func TestKafkaIsAwayForAWhile(t *testing.T) {
	client := dial(t, realRedis(t))
	p, err := NewPublisher(PublisherConfig{
		Redis: client, Kafka: []string{freeAddr(t)}, Partitions: 1, PublishOnly: true, Heartbeat: 50 * time.Millisecond, Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := start(t, p.Run)
	eventually(t, "it is reported", func() bool { return p.Stats().Failing })
	stop()
	if applied := p.Stats().Partitions[0].Applied; applied != 0 {
		t.Errorf("applied up to %d without having read anything", applied)
	}
}

// TestPartitionsAreReadInTurns: kafka-go takes 64 KiB for each batch, and verdicts that fell one by one are a batch each. Four
// partitions of 5,000 of them took a gigabyte when they were read at once.
func TestPartitionsAreReadInTurns(t *testing.T) {
	kafka := newBroker(t, 1)
	kafka.write(0, record(block("42", 1, time.Hour)))
	transport := &kafkago.Transport{ClientID: t.Name()}
	defer transport.CloseIdleConnections()
	p, err := NewPublisher(PublisherConfig{Redis: dial(t, miniredis.RunT(t).Addr()), Kafka: kafka.addrs, Partitions: 1, Logger: quiet(), Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	p.topic.turn <- struct{}{} // another partition's
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := p.topic.fetch(ctx, 0, 0, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("it is read out of turn: %+v, %v", f, err)
	}
	<-p.topic.turn
	for range 2 { // and gives its turn back
		if f, err := p.topic.fetch(t.Context(), 0, 0, 0); err != nil || len(f.records) != 1 {
			t.Errorf("in turn: %+v, %v", f, err)
		}
	}
}
